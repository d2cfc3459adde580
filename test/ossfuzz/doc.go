// Package ossfuzz tests the command tools/oss-fuzz, which is of another module. It contains tests only.
package ossfuzz
