package exec

import "testing"

// TestArenas checks that many processes have device memory at the same time.
func TestArenas(t *testing.T) {
	t.Parallel()
	for i := range 300 {
		a, err := newArena()
		if err != nil {
			t.Fatalf("arena %d: %v", i, err)
		}
		t.Cleanup(a.close)
		if i >= 1 && int64(len(a.data)) > mostAddresses/2 || int64(len(a.data)) < mostAddresses/1024 {
			t.Errorf("arena %d has %d bytes of addresses", i, len(a.data))
		}
	}
}
