package toolchain

import (
	"bytes"
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"fmt"
	"io"
	"sort"
	"strings"
)

// codeHash is the SHA-256 of the sections of a cubin that affect execution: instructions,
// constants, initialised data and the size of shared memory, each with its section's name. It
// excludes debug information, symbols and notes, so it does not depend on source lines or on the
// build folder.
func codeHash(cubin []byte) (string, error) {
	file, err := elf.NewFile(bytes.NewReader(cubin))
	if err != nil {
		return "", fmt.Errorf("read the machine code: %w", err)
	}
	var sections []*elf.Section
	hasCode := false
	for _, s := range file.Sections {
		if affectsExecution(s.Name) {
			sections = append(sections, s)
		}
		hasCode = hasCode || strings.HasPrefix(s.Name, textPrefix)
	}
	if !hasCode {
		return "", fmt.Errorf("read the machine code: it has no section .text.*")
	}
	sort.Slice(sections, func(i, j int) bool { return sections[i].Name < sections[j].Name })
	hash := sha256.New()
	for _, s := range sections {
		fmt.Fprintf(hash, "%s %d\n", s.Name, s.Size)
		if s.Type == elf.SHT_NOBITS {
			continue
		}
		if _, err := io.Copy(hash, s.Open()); err != nil {
			return "", fmt.Errorf("read section %s of the machine code: %w", s.Name, err)
		}
	}
	return hex.EncodeToString(hash.Sum(nil)), nil
}

// completeCubin reports whether a cubin has all of its sections. ptxas writes the tables of sections
// and segments to the end of the file.
func completeCubin(cubin []byte) bool {
	_, err := codeHash(cubin)
	return err == nil
}

// textPrefix and a function's name are the name of the section with its instructions.
const textPrefix = ".text."

// affectsExecution reports whether a section of a cubin affects execution.
func affectsExecution(section string) bool {
	for _, prefix := range []string{textPrefix, ".nv.constant", ".nv.global", ".nv.shared.", ".nv.info."} {
		if strings.HasPrefix(section, prefix) {
			return true
		}
	}
	return false
}
