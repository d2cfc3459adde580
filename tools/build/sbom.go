package build

import (
	"bytes"
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"regexp"
	"time"

	"github.com/spdx/tools-golang/spdx/v2/common"
	"github.com/spdx/tools-golang/spdx/v2/v2_3"
)

// spdx returns an SPDX 2.3 document in JSON with the modules that binary is built from,
// as the Go toolchain recorded them in it, and their licenses.
func (r Release) spdx(binary []byte) ([]byte, error) {
	info, err := buildinfo.Read(bytes.NewReader(binary))
	if err != nil {
		return nil, err
	}

	directories, err := r.directories(info)
	if err != nil {
		return nil, err
	}

	server := modulePackage(info.Main.Path, r.Version)
	server.PackageLicenseDeclared = "Apache-2.0"
	document := &v2_3.Document{
		SPDXVersion:       v2_3.Version,
		DataLicense:       v2_3.DataLicense,
		SPDXIdentifier:    "DOCUMENT",
		DocumentName:      "seamark-" + r.Version,
		DocumentNamespace: "https://" + info.Main.Path + "/spdx/" + r.Version + "-" + r.Commit,
		CreationInfo: &v2_3.CreationInfo{
			Created:  r.Date.UTC().Format(time.RFC3339),
			Creators: []common.Creator{{CreatorType: "Tool", Creator: "seamark-build"}},
		},
		Packages:      []*v2_3.Package{server},
		Relationships: []*v2_3.Relationship{relationship("DOCUMENT", "DESCRIBES", server)},
	}

	library := modulePackage("stdlib", info.GoVersion[len("go"):])
	library.PackageLicenseDeclared = "BSD-3-Clause"
	dependencies := []*v2_3.Package{library}
	for _, m := range info.Deps {
		license, err := spdxLicense(directories[m.Path])
		if err != nil {
			return nil, err
		}
		if m.Replace != nil {
			m = m.Replace
		}
		p := modulePackage(m.Path, m.Version)
		p.PackageLicenseDeclared = license
		dependencies = append(dependencies, p)
	}

	for _, p := range dependencies {
		document.Packages = append(document.Packages, p)
		document.Relationships = append(document.Relationships,
			relationship(server.PackageSPDXIdentifier, "DEPENDS_ON", p))
	}
	return json.MarshalIndent(document, "", "  ")
}

// noAssertion is SPDX's word for what a document does not say.
const noAssertion = "NOASSERTION"

func modulePackage(path, version string) *v2_3.Package {
	return &v2_3.Package{
		PackageName:             path,
		PackageSPDXIdentifier:   common.ElementID("Package-" + notOfIDs.ReplaceAllString(path, "-")),
		PackageVersion:          version,
		PackageDownloadLocation: noAssertion,
		PackageLicenseConcluded: noAssertion,
		PackageLicenseDeclared:  noAssertion,
		PackageCopyrightText:    noAssertion,
		PackageExternalReferences: []*v2_3.PackageExternalReference{{
			Category: "PACKAGE-MANAGER", RefType: "purl", Locator: fmt.Sprintf("pkg:golang/%s@%s", path, version),
		}},
	}
}

// notOfIDs matches characters that an SPDX identifier must not have.
var notOfIDs = regexp.MustCompile(`[^A-Za-z0-9.-]`)

func relationship(from common.ElementID, kind string, to *v2_3.Package) *v2_3.Relationship {
	return &v2_3.Relationship{
		RefA:         common.MakeDocElementID("", string(from)),
		RefB:         common.MakeDocElementID("", string(to.PackageSPDXIdentifier)),
		Relationship: kind,
	}
}
