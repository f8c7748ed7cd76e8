package ledger

import (
	"os"
	"path/filepath"
	"testing"
)

func thousand(b *testing.B) string {
	dir := b.TempDir()
	for i := range 1000 {
		plant(b, dir, sampleEntry(i))
	}
	seal(b, dir)
	if err := open(b, dir).Close(); err != nil {
		b.Fatal(err)
	}
	return dir
}

func openAndClose(b *testing.B, dir string) {
	l, err := Open(b.Context(), dir)
	if err != nil {
		b.Fatal(err)
	}
	l.Close()
}

func BenchmarkOpen1000(b *testing.B) {
	dir := thousand(b)
	for b.Loop() {
		openAndClose(b, dir)
	}
}

func BenchmarkOpen1000WithoutIndex(b *testing.B) {
	dir := thousand(b)
	for b.Loop() {
		if err := os.Remove(filepath.Join(dir, indexName)); err != nil {
			b.Fatal(err)
		}
		openAndClose(b, dir)
	}
}

func BenchmarkListNewest20Of1000(b *testing.B) {
	l := open(b, thousand(b))
	for b.Loop() {
		if entries, err := l.List(b.Context(), Filter{Limit: 20}); err != nil || len(entries) != 20 {
			b.Fatal(len(entries), err)
		}
	}
}

func BenchmarkVerify1000(b *testing.B) {
	l := open(b, thousand(b))
	for b.Loop() {
		if r, err := l.Verify(b.Context()); err != nil || r.Runs != 1000 {
			b.Fatal(r, err)
		}
	}
}

func BenchmarkRecord(b *testing.B) {
	l := open(b, b.TempDir())
	for i := 0; b.Loop(); i++ {
		record(b, l, sampleEntry(i))
	}
}
