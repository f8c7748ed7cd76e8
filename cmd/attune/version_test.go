package main

import (
	"bytes"
	"strings"
	"testing"

	"attune/internal/toolchain"
)

func TestPrintVersion(t *testing.T) {
	const sha = "0123456789abcdef0123456789abcdef01234567"
	check := func(g toolchain.Git, date, first, rest string) {
		t.Helper()
		var out bytes.Buffer
		if err := printVersion(&out, g, date); err != nil {
			t.Fatal(err)
		}
		if text := out.String(); !strings.HasPrefix(text, "attune "+first+" go1.") || !strings.HasSuffix(text, rest) {
			t.Errorf("got:\n%s", text)
		}
	}
	check(toolchain.Git{SHA: sha}, "2026-11-16T12:00:00Z", release+"+0123456789ab", "\n  commit  "+sha+", clean\n  date    2026-11-16T12:00:00Z\n")
	check(toolchain.Git{SHA: sha, Dirty: true}, "2026-11-16T12:00:00Z", release+"+0123456789ab.dirty",
		"\n  commit  "+sha+", dirty: built with uncommitted changes\n  date    2026-11-16T12:00:00Z\n")
	check(toolchain.Git{}, "", release, "\n  commit  not recorded; `make build` records it\n  date    not recorded\n")
}
