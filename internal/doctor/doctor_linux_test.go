package doctor

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
)

// Root may write everywhere, so this is asked by a thread that is not root to the file system.
func TestUnwritable(t *testing.T) {
	base := t.TempDir()
	folder := filepath.Join(base, "locked")
	if err := os.Mkdir(folder, 0o555); err != nil {
		t.Fatal(err)
	}
	// The folder of all of a test's temporary folders is for its user alone; here another has to get through it.
	if err := os.Chmod(filepath.Dir(base), 0o755); err != nil {
		t.Fatal(err)
	}
	answers := make(chan Ability)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		if os.Geteuid() == 0 {
			_ = syscall.Setfsuid(65534)
		}
		for _, dir := range []string{folder, filepath.Join(folder, "new")} {
			answers <- writable("keep runs", dir, "go elsewhere")
		}
		close(answers)
	}()
	for a := range answers {
		if a.OK || !strings.Contains(a.Why, "permission denied") || a.Do != "go elsewhere" {
			t.Errorf("got %+v; want that permission was denied", a)
		}
	}
}
