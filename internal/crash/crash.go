package crash

import (
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"strings"
	"sync"
	"time"
)

// Panic is a panic that was recovered.
type Panic struct {
	Where string // what the program was doing, such as a kernel and its instruction
	Value any
	Stack []byte
}

// New returns the panic of a value from recover. It must be called by the deferred function, where
// the stack is that of the panic. A panic that a Group has carried keeps its own stack.
func New(value any, where string) *Panic {
	if carried, ok := value.(*Panic); ok {
		return &Panic{Where: where, Value: carried.Value, Stack: carried.Stack}
	}
	return &Panic{Where: where, Value: value, Stack: debug.Stack()}
}

func (p *Panic) Error() string {
	value := strings.Join(strings.Fields(fmt.Sprint(p.Value)), " ")
	return fmt.Sprintf("internal error, a defect of attune, in %s: %s", p.Where, value)
}

// Catch recovers a panic and stores it as the error. It must be deferred itself.
func Catch(err *error, where func() string) {
	if value := recover(); value != nil {
		*err = New(value, where())
	}
}

// Group is a group of goroutines, like sync.WaitGroup. Wait panics with the first panic of any of
// them, so that the caller can recover it.
type Group struct {
	group sync.WaitGroup
	once  sync.Once
	first *Panic
}

// Go calls f in a goroutine.
func (g *Group) Go(f func()) {
	g.group.Go(func() {
		defer func() {
			if value := recover(); value != nil {
				p := New(value, "a worker")
				g.once.Do(func() { g.first = p })
			}
		}()
		f()
	})
}

// Wait waits for all goroutines.
func (g *Group) Wait() {
	g.group.Wait()
	if g.first != nil {
		panic(g.first)
	}
}

// maxAttachment bounds what a report holds of one file, in bytes.
const maxAttachment = 1 << 20

// Report writes a report into a folder and returns its path. facts are lines about the program,
// files are inputs that the report includes.
func (p *Panic) Report(folder string, facts []string, files ...string) (string, error) {
	var text strings.Builder
	fmt.Fprintf(&text, "%s\n\ntime: %s\n%s\n\n%s\n", p.Error(), time.Now().UTC().Format(time.RFC3339), strings.Join(facts, "\n"), p.Stack)
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			fmt.Fprintf(&text, "\n-- %s: %v --\n", file, err)
			continue
		}
		fmt.Fprintf(&text, "\n-- %s, %d bytes --\n%s\n", file, len(data), data[:min(len(data), maxAttachment)])
	}
	out, err := os.CreateTemp(folder, "attune-crash-*.txt")
	if err != nil {
		return "", err
	}
	_, err = out.WriteString(text.String())
	return out.Name(), errors.Join(err, out.Close())
}
