package propose

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestMain runs a proposer of these tests if its name is the argument.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		if name, ok := strings.CutPrefix(os.Args[1], "proposer:"); ok {
			runProgram(name, os.Args[2:])
			os.Exit(0)
		}
	}
	os.Exit(m.Run())
}

// program is the command of a proposer of these tests.
func program(t *testing.T, name string, args ...string) []string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return append([]string{self, "proposer:" + name}, args...)
}

// hear appends a message to a file.
func hear(path string, line []byte) {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err == nil {
		fmt.Fprintf(file, "%s\n", line)
		err = file.Close()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
}

// runProgram answers states. "say" answers with its arguments, one a state, and repeats the last;
// "hear" does so too, and writes what it gets to the file of its first argument.
func runProgram(name string, args []string) {
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 64<<20)
	states := 0
	for in.Scan() {
		var message struct{ Type string }
		if err := json.Unmarshal(in.Bytes(), &message); err != nil {
			fmt.Println("not JSON:", err)
			return
		}
		if name == "hear" {
			hear(args[0], in.Bytes())
		}
		if message.Type == "hello" {
			continue
		}
		states++
		switch name {
		case "say":
			fmt.Println(args[min(states, len(args))-1])
		case "hear":
			fmt.Println(args[min(states, len(args)-1)])
		case "echo": // the state, as text in a refused type
			text, _ := json.Marshal(map[string]string{"type": in.Text()})
			fmt.Println(string(text))
		case "hang":
			grandchild := exec.Command("sleep", "600")
			if grandchild.Start() == nil {
				_ = os.WriteFile(args[0], []byte(strconv.Itoa(grandchild.Process.Pid)), 0o644)
			}
			time.Sleep(time.Hour)
		case "grow":
			for text := []byte{1}; ; {
				text = bytes.Repeat(text, 2)
			}
		case "die":
			fmt.Fprintln(os.Stderr, "Traceback (most recent call last):\nRuntimeError: no\x1b[31m luck")
			os.Exit(3)
		case "huge":
			fmt.Println(strings.Repeat("x", 1<<20))
		case "flood":
			for range 40 << 10 {
				fmt.Fprintln(os.Stderr, strings.Repeat("x", 1023))
			}
			fmt.Println(`{"type":"proposals"}`)
		}
	}
}
