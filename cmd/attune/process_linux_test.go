package main

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"attune/kernels"
)

// On a terminal the status line has the present mutant. An interrupted program reports how far it
// got.
func TestInterruptMutants(t *testing.T) {
	user, program := terminalPair(t)
	cmd, _ := command(t, "mutate", "stage2", "--shapes", "1x1x33x64")
	cmd.Env = append(cmd.Env, "TERM=xterm")
	cmd.Stderr = program
	shown := interruptAt(t, cmd, user, program, "mutant at line ")
	if !regexp.MustCompile(`attune: interrupted; \d+ of 300 mutants were tried\r\n$`).MatchString(shown) {
		t.Errorf("the terminal shows %q", shown)
	}
}

// An interrupted run keeps what is finished and leaves the terminal without a status line.
func TestInterruptRun(t *testing.T) {
	user, program := terminalPair(t)
	cmd, _ := command(t, "run", "stage2", "stage1", "--device", "sim", "--arch", "sm_80", "--shapes", "1x1x32x64,1x2x33x64")
	cmd.Env = append(cmd.Env, "TERM=xterm")
	cmd.Stdout, cmd.Stderr = program, program
	text := interruptAt(t, cmd, user, program, "[2/2] stage1")
	if !regexp.MustCompile(`\r\x1b\[Kattune: interrupted; 1 of 2 runs were finished and are in \.attune\r\n$`).MatchString(text) {
		t.Errorf("the terminal shows %q at the end", text)
	}
	for _, want := range []string{
		`\[1/2\] stage2  [0-4]/10   elapsed \d:\d\d`, `\[1/2\] stage2  \d/10   elapsed \d:\d\d  left \d:\d\d`,
		`\r\x1b\[Kstage2  \x1b\[32mok\x1b\[0m     10/10   64 regs  43\.5 KB  time: no GPU\r\n`,
	} {
		if !regexp.MustCompile(want).MatchString(text) {
			t.Errorf("the terminal does not show %s: %q", want, text)
		}
	}
	if runs, err := filepath.Glob(filepath.Join(cmd.Dir, ".attune", "runs", "*")); err != nil || len(runs) != 1 {
		t.Errorf("%d runs recorded, %v", len(runs), err)
	}
}

// On a terminal the result of watch replaces what was shown before.
func TestWatchOnATerminal(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "sdpa")
	if err := os.CopyFS(folder, kernels.SDPA()); err != nil {
		t.Fatal(err)
	}
	user, program := terminalPair(t)
	cmd, _ := command(t, "watch", "stage2", "--kernel", folder, "--device", "sim", "--arch", "sm_89", "--shapes", "1x1x32x64")
	cmd.Env = append(cmd.Env, "TERM=xterm", "COLUMNS=300") // so that no line is folded
	cmd.Stdout, cmd.Stderr = program, program
	shown := interruptAt(t, cmd, user, program, "Ctrl-C ends\r\n")
	if !regexp.MustCompile(`\x1b\[2J\x1b\[Hstage2  \x1b\[32mok\x1b\[0m       5/5 `).MatchString(shown) {
		t.Errorf("the terminal shows %q", shown)
	}
}

// interruptAt starts a program on a terminal, interrupts it when the terminal has received a text,
// and returns all that it received. The program must end with the exit code of an interrupt.
func interruptAt(t *testing.T, cmd *exec.Cmd, user, program *os.File, text string) string {
	t.Helper()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	program.Close() // so that reading ends with the process
	var shown strings.Builder
	signalled := false
	for in := bufio.NewReader(user); ; {
		letter, err := in.ReadByte()
		if err != nil { // EIO when the other side is closed
			break
		}
		shown.WriteByte(letter)
		if !signalled && strings.HasSuffix(shown.String(), text) {
			signalled = true
			if err := cmd.Process.Signal(os.Interrupt); err != nil {
				t.Fatal(err)
			}
		}
	}
	if code, died := exitOf(t, cmd.Wait()); code != exitInterrupted {
		t.Errorf("exit code %d, signal %v", code, died)
	}
	return shown.String()
}

// The output of a run fits the terminal.
func TestRunFitsTheTerminal(t *testing.T) {
	for _, width := range []uint16{60, 80, 100, 160} {
		shown := onTerminal(t, width, t.TempDir(), nil, "run", "stage2", "stage7", "stage3b+TILE_M=32",
			"--device", "sim", "--shapes", "1x1x5x64", "--quick")
		lines := screenLines(shown)
		for _, line := range lines {
			if len([]rune(line)) > int(width) {
				t.Errorf("wider than %d columns: %s", width, line)
			}
		}
		text := strings.Join(lines, "\n")
		if !strings.Contains(text, "stage7") || !strings.Contains(text, "3 variants: 3 ok, 0 failed") {
			t.Errorf("the terminal shows %q", text)
		}
	}
}

// terminalPair is a pseudo terminal: the user's side and the program's side.
func terminalPair(t *testing.T) (user, program *os.File) {
	t.Helper()
	user, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skip("no pseudo terminals here: ", err)
	}
	t.Cleanup(func() { user.Close() })
	raw, err := user.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var number int
	var failed error
	err = raw.Control(func(fd uintptr) {
		if failed = unix.IoctlSetPointerInt(int(fd), unix.TIOCSPTLCK, 0); failed == nil {
			number, failed = unix.IoctlGetInt(int(fd), unix.TIOCGPTN)
		}
		if failed == nil {
			failed = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 120})
		}
	})
	if err != nil || failed != nil {
		t.Fatal(err, failed)
	}
	program, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	return user, program
}
