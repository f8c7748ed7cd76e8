package toolchain

import "testing"

func TestEntryName(t *testing.T) {
	for want, got := range map[string]string{
		"k":       Target{Kernel: "k"}.EntryName(),
		"main_k":  Target{Kernel: "k", Entry: "main_k"}.EntryName(),
		"r":       (&Record{Kernel: "r"}).EntryName(),
		"entry_r": (&Record{Kernel: "r", Entry: "entry_r"}).EntryName(),
	} {
		if got != want {
			t.Errorf("%s; want %s", got, want)
		}
	}
}
