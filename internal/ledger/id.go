package ledger

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"strings"
	"time"
)

const (
	idTime     = "20060102-150405"
	idHexSize  = 6
	idNameSize = 40
)

// NewID returns a new id for a record made at t, such as 20261115-031522-stage2-3f9a1c. The name,
// usually the stage, helps people to recognise it; characters unfit for file names become dashes.
func NewID(t time.Time, name string) string {
	var random [idHexSize / 2]byte
	rand.Read(random[:]) // never returns an error: without randomness it ends the process
	return t.UTC().Format(idTime) + "-" + plainName(name) + "-" + hex.EncodeToString(random[:])
}

// plainName keeps lower-case letters, digits, dots and underscores. Everything else becomes single
// dashes.
func plainName(name string) string {
	var b strings.Builder
	for _, r := range strings.ToLower(name) {
		switch {
		case isNameByte(r) && r != '-':
			b.WriteRune(r)
		case !strings.HasSuffix(b.String(), "-"):
			b.WriteByte('-')
		}
	}
	plain := strings.Trim(b.String(), "-")
	plain = strings.TrimRight(plain[:min(len(plain), idNameSize)], "-")
	if plain == "" {
		return "run"
	}
	return plain
}

func isNameByte(r rune) bool {
	return 'a' <= r && r <= 'z' || '0' <= r && r <= '9' || r == '.' || r == '_' || r == '-'
}

func isHex(text string) bool {
	for _, r := range text {
		if !('0' <= r && r <= '9' || 'a' <= r && r <= 'f') {
			return false
		}
	}
	return true
}

// parseID returns the time in an id, or an error if text is not an id. An id is also the name of a
// directory, so this check keeps out paths such as "../..".
func parseID(text string) (time.Time, error) {
	bad := func(why string) (time.Time, error) {
		return time.Time{}, fmt.Errorf("%q is not the id of a run, such as 20261115-031522-stage2-3f9a1c: %s", text, why)
	}
	const shortest = len(idTime) + len("-n-") + idHexSize
	if len(text) < shortest || len(text) > shortest-1+idNameSize {
		return bad("it is too short or too long")
	}
	t, err := time.Parse(idTime, text[:len(idTime)])
	if err != nil || t.Format(idTime) != text[:len(idTime)] {
		return bad("it does not start with a date and a time")
	}
	rest := text[len(idTime):]
	name, digits := rest[:len(rest)-idHexSize], rest[len(rest)-idHexSize:]
	if !isHex(digits) {
		return bad("it does not end with six hex digits")
	}
	if !strings.HasPrefix(name, "-") || !strings.HasSuffix(name, "-") || name[1:len(name)-1] != plainName(name) {
		return bad("there is no plain name between its time and its digits")
	}
	return t, nil
}
