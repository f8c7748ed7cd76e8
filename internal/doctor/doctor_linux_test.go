package doctor

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
)

// Root may write everywhere, so the check runs in a thread that is not root for the file system.
func TestUnwritable(t *testing.T) {
	base := t.TempDir()
	folder := filepath.Join(base, "locked")
	if err := os.Mkdir(folder, 0o555); err != nil {
		t.Fatal(err)
	}
	// Only the user may enter the parent of a test's temporary folders; here another user must.
	if err := os.Chmod(filepath.Dir(base), 0o755); err != nil {
		t.Fatal(err)
	}
	abilities := make(chan Ability)
	go func() {
		runtime.LockOSThread() // never unlocked, so the thread ends with the goroutine
		if os.Geteuid() == 0 {
			_ = syscall.Setfsuid(65534)
		}
		for _, dir := range []string{folder, filepath.Join(folder, "new")} {
			abilities <- writable("keep runs", dir, "use another folder")
		}
		close(abilities)
	}()
	for a := range abilities {
		if a.OK || !strings.Contains(a.Why, "permission denied") || a.Do != "use another folder" {
			t.Errorf("got %+v; want permission denied", a)
		}
	}
}
