package fleet

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// Workers, classes and dead letters are listed in their order, and a letter is tried again by the
// beginning of its key. What is no job is dropped.
func TestStatusIsOrdered(t *testing.T) {
	b := newBench(t)
	b.worker("b", double)
	b.worker("a", double)
	b.all(4)
	for _, class := range []string{"sim", "another"} {
		if err := b.open(t.Context(), class); err != nil {
			t.Fatal(err)
		}
	}
	first, second := job(t, 1001), job(t, 1002)
	for _, j := range []*Job{&first, &second} {
		if err := b.noteDead(t.Context(), j, "lost"); err != nil {
			t.Fatal(err)
		}
	}
	s, err := b.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Workers) != 2 || s.Workers[0].Name != "a" || s.Workers[0].Cores < 1 || len(s.Classes) != 2 || s.Classes[0].Class != "another" {
		t.Errorf("%+v", s)
	}
	if len(s.Dead) != 2 || s.Dead[0].Key != first.Key() {
		t.Errorf("%+v", s.Dead)
	}
	for _, j := range []Job{second, first} {
		if letter, err := b.Retry(t.Context(), j.Key()[:12]); err != nil || letter.Key != j.Key() {
			t.Errorf("%+v, %v", letter, err)
		}
	}
	if err := b.conn.Publish(jobSubject+"sim.garbage", []byte("no job")); err != nil {
		t.Fatal(err)
	}
	b.all(4)
}

// The streams stop while the disk takes no file, and go on when it does. An invitation for a server that
// trusts everybody is named.
func TestGuard(t *testing.T) {
	path := filepath.Join(t.TempDir(), "fleet")
	var mu sync.Mutex
	var notes []string
	h, err := StartHost(t.Context(), path, "127.0.0.1:0", func(line string) {
		mu.Lock()
		defer mu.Unlock()
		notes = append(notes, line)
	})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	noted := func(text string) {
		t.Helper()
		for began := time.Now(); time.Since(began) < 30*time.Second; time.Sleep(50 * time.Millisecond) {
			mu.Lock()
			all := strings.Join(notes, "\n")
			mu.Unlock()
			if strings.Contains(all, text) {
				return
			}
		}
		t.Fatalf("no note %q in %q", text, notes)
	}
	if _, err := h.home.Invite("gpu7", "", ""); err != nil {
		t.Fatal(err)
	}
	noted("workers are invited: start the server again")
	inTheWay := filepath.Join(path, "reserve", "full")
	for began := time.Now(); ; time.Sleep(time.Millisecond) { // the server writes a file of this name now and then
		err := os.MkdirAll(inTheWay, 0o755)
		if err == nil {
			break
		}
		if time.Since(began) > 10*time.Second {
			t.Fatal(err)
		}
	}
	noted("the fleet's server has stopped: ")
	if err := os.RemoveAll(filepath.Dir(inTheWay)); err != nil {
		t.Fatal(err)
	}
	noted("the fleet's server goes on")
}
