package archtest

import (
	"io/fs"
	"os"
	"path"
	"strings"
	"testing"
)

// mostWords is how many words docs has at most: what is said twice is said once, and notes for developers
// are beside the code. The page of conformance, by which users choose a server, takes 2,000 of them.
const mostWords = 62_000

// TestDocumentsAreShort counts the words of docs as wc does.
func TestDocumentsAreShort(t *testing.T) {
	words := 0
	docs := os.DirFS("../../docs")
	err := fs.WalkDir(docs, ".", func(file string, _ fs.DirEntry, err error) error {
		if err != nil || path.Ext(file) != ".md" {
			return err
		}
		text, err := fs.ReadFile(docs, file)
		words += len(strings.Fields(string(text)))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if words < mostWords/2 || words > mostWords {
		t.Errorf("docs: got %d words, want at most %d", words, mostWords)
	}
}
