package exec

import (
	"bytes"
	"encoding/binary"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"attune/internal/finding"
)

// fat makes a container of images.
func fat(images ...[]byte) []byte {
	all := bytes.Join(images, nil)
	header := binary.LittleEndian.AppendUint32(nil, fatMagic)
	header = binary.LittleEndian.AppendUint16(header, 1)
	header = binary.LittleEndian.AppendUint16(header, 16)
	return append(binary.LittleEndian.AppendUint64(header, uint64(len(all))), all...)
}

// image makes an image of a container.
func image(kind uint16, arch uint32, flags uint64, payload []byte, size int) []byte {
	header := make([]byte, 64)
	le := binary.LittleEndian
	le.PutUint16(header, kind)
	le.PutUint32(header[4:], 64)
	padded := append(payload, make([]byte, -len(payload)&7)...)
	le.PutUint64(header[8:], uint64(len(padded)))
	if flags != 0 {
		le.PutUint32(header[16:], uint32(len(payload)))
	}
	le.PutUint32(header[28:], arch)
	le.PutUint64(header[40:], flags)
	le.PutUint64(header[56:], uint64(size))
	return append(header, padded...)
}

func TestPTXOf(t *testing.T) {
	text := func(arch string) []byte {
		return []byte(".version 8.0\n.target " + arch + "\n" + strings.Repeat("// text\n", 20))
	}
	writer, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	packed := writer.EncodeAll(text("sm_90a"), nil)
	data := fat(
		image(2, 90, 0, []byte("machine code"), 0), image(1, 80, 0, text("sm_80"), 0),
		image(1, 90, flagZstd, packed, len(text("sm_90a"))), image(1, 100, 0, text("sm_100"), 0),
	)
	for device, want := range map[string]string{"sm_80": "sm_80", "sm_89": "sm_80", "sm_90a": "sm_90a", "sm_120": "sm_100"} {
		got, err := ptxOf(data, device)
		if err != nil || !bytes.Equal(got, text(want)) {
			t.Errorf("%s: %v, %q", device, err, got)
		}
	}
	for _, c := range []struct {
		data []byte
		want string
	}{
		{fat(image(2, 90, 0, []byte("machine code"), 0)), "machine code and no PTX"},
		{fat(image(1, 100, 0, text("sm_100"), 0)), "PTX for sm_100 and later"},
		{[]byte("\x7fELF machine code"), "machine code and no PTX"},
		{data[:100], "it is not complete"},
		{nil, "empty"},
	} {
		if _, err := ptxOf(c.data, "sm_90a"); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("error %v, want %q", err, c.want)
		}
	}
	for n := range data { // no part of it makes the reader panic
		_, _ = ptxOf(data[:n], "sm_90a")
	}
}

func TestLZ4(t *testing.T) {
	// 4 literals, a match of 8 at distance 4, 20 literals with a longer length.
	packed := append([]byte{0x44, 'a', 'b', 'c', 'd', 4, 0, 0xf0, 5}, strings.Repeat("x", 20)...)
	want := "abcdabcdabcd" + strings.Repeat("x", 20)
	got, err := unpackLZ4(packed, len(want))
	if err != nil || string(got) != want {
		t.Errorf("%v, %q", err, got)
	}
	for n := range packed {
		if _, err := unpackLZ4(packed[:n], len(want)); err == nil {
			t.Errorf("the first %d bytes unpack", n)
		}
	}
	if _, err := unpackLZ4([]byte{0x10, 'a', 9, 0}, 5); err == nil {
		t.Error("a match before the output unpacks")
	}
}

func TestShortName(t *testing.T) {
	for mangled, want := range map[string]string{
		"saxpy": "saxpy", "_Z3addPKfS0_Pfi": "add", "_ZN4cuda3std4sortIiEEvPT_": "sort", "_Z6kernelILi4EEvPf": "kernel", "_ZN12_GLOBAL__N_14bodyEv": "body",
		"_Z": "_Z", "_Z9x": "_Z9x",
	} {
		if got := shortName(mangled); got != want {
			t.Errorf("%s: %s, want %s", mangled, got, want)
		}
	}
}

func TestMatches(t *testing.T) {
	for _, c := range []struct {
		pattern, name string
		want          bool
	}{
		{"add", "add", true},
		{"add", "adds", false},
		{"a*d", "add", true},
		{"*", "", true},
		{"*a*b*", "xaxbx", true},
		{"a*a", "a", false},
		{"*/k.cu:8", "src/k.cu:8", true},
	} {
		if got := matches(c.pattern, c.name); got != c.want {
			t.Errorf("%s, %s: %v", c.pattern, c.name, got)
		}
	}
}

func TestSuppressions(t *testing.T) {
	if _, err := ReadSuppressions([]byte("a b race\n")); err == nil {
		t.Error("a line without a reason is accepted")
	}
	if _, err := ReadSuppressions([]byte("a * rase because\n")); err == nil || !strings.Contains(err.Error(), `line 1: "rase" is no kind`) {
		t.Errorf("a kind that does not exist: %v", err)
	}
	if _, err := ReadSuppressions([]byte("\ufeff# from an editor\r\na * race because\r\n")); err != nil {
		t.Error(err)
	}
	s, err := ReadSuppressions([]byte("\n# text\nsort sort.cuh:12 race  equal   values\n* * deadlock\tby design\n"))
	if err != nil {
		t.Fatal(err)
	}
	f := &Found{Kernel: "sort", Finding: finding.Finding{Kind: finding.Race, Where: finding.Place{File: "/usr/sort.cuh", Line: 12}}}
	if reason, ok := s.reason(f); !ok || reason != "equal values" {
		t.Errorf("%q, %v", reason, ok)
	}
	f.Where.Line = 13
	if _, ok := s.reason(f); ok {
		t.Error("another line is suppressed")
	}
}
