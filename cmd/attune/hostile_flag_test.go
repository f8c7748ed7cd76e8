//go:build linux

package main

import (
	"os"
	"strings"
	"time"
)

func flagAttacks() []attack {
	args := func(name string, exit int, want string, list ...string) attack {
		return attack{kind: "flag", name: name, exit: exit, want: want, stage: func(*arena) []string { return list }}
	}
	staged := func(name string, exit int, want string, stage func(a *arena) []string) attack {
		return attack{kind: "flag", name: name, exit: exit, want: want, stage: stage}
	}
	env := func(k attack, list ...string) attack { k.with.env = list; return k }
	slow := func(k attack) attack { k.with.slow = true; return k }
	run := []string{"run", "stage2", "--device", "sim", "--arch", "sm_80", "--shapes", "1x1x32x64", "--seeds", "0"}
	small := func(more ...string) []string { return append(append([]string{}, run...), more...) }
	// A pipe in place of a file to write: nobody reads it.
	writesPipe := func(name string, exit int, want string, list ...string) attack {
		return staged(name, exit, want, func(a *arena) []string {
			a.pipe("out")
			a.pipe("out.npy")
			a.write("k.ptx", copyPTX)
			return list
		})
	}
	toolkit := func(name string, exit int, want, script string) attack {
		k := staged(name, exit, want, func(a *arena) []string {
			for _, p := range []string{"nvcc", "ptxas"} {
				a.program("toolkit/bin/"+p, "#!/bin/sh\n"+script)
			}
			return []string{"build", "stage2", "--arch", "sm_80"}
		})
		k.with.env = []string{"CUDA_HOME=WORK/toolkit", "NVCC_CCBIN=sh"}
		return k
	}
	const good = `if [ "$1" = --version ]; then echo "Cuda compilation tools, release 13.0, V13.0.88"; exit; fi
`
	interrupted := func(k attack) attack { k.exit, k.with.interrupt = exitInterrupted, 2*time.Second; return k }
	return []attack{
		args("a name of a variant of 100 KB", 2, "unknown", "run", "stage2"+strings.Repeat("+A=1", 25_000)),
		args("a name of a variant with escapes", 2, "", "run", "stage2\x1b]0;owned\x07"),
		args("a shape of 99 dimensions", 2, "", "run", "stage2", "--shapes", strings.Repeat("9x", 99)+"9"),
		args("a shape of an exabyte", 2, "", "run", "stage2", "--device", "sim", "--shapes", "1x1x9223372036854775807x64"),
		args("20,000 shapes", 2, "", "run", "stage2", "--device", "sim", "--shapes", strings.Repeat("nosuch,", 15_000)+"x"),
		args("a seed beyond 64 bits", 2, "", small("--seeds", "18446744073709551616")...),
		args("a time limit below zero", 2, "", small("--timeout", "-1s")...),
		args("an endless number of schedules", 22, "", small("--schedules", "99999999999", "--timeout", "1s")...),
		args("a budget of 10**18 evaluations", 2, "", "tune", "stage2", "--device", "sim", "--budget", "-5"),
		args("a ledger that is a device", 1, "", "history", "--ledger", "/dev/null"),
		args("a ledger without a place", 1, "", small("--ledger", "/proc/nosuch/ledger")...),
		args("a kernel that is a device", 2, "", "list", "--kernel", "/dev/zero"),
		args("a file of 200 levels", 2, "", "list", "--kernel", strings.Repeat("a/", 200)),
		args("an unknown shell", 2, "", "completion", "nosuchshell"),
		args("an unknown device", 2, "", "history", "--device", "tpu"),
		args("a report into a device", 2, "", "report", "latest", "-o", "/dev/null"),
		args("mutants below zero", 2, "", "mutate", "stage2", "--mutants", "-1"),
		args("accuracy of a length of 10**9", 2, "", "accuracy", "--host", "--lengths", "1000000000"),
		args("accuracy of 10**9 heads", 2, "", "accuracy", "--host", "--shapes", "100000x10000x64x64"),
		staged("a new kernel over a link", 2, "", func(a *arena) []string { a.link("new", a.outside); return []string{"init", "blank", "--dir", "new"} }),
		staged("a build written over a link", 1, "it is not a regular file", func(a *arena) []string {
			a.folder("out")
			a.link("out/stage2.sm_80.ptx", a.outside+"/owned")
			return []string{"build", "stage2", "--arch", "sm_80", "--emit", "ptx", "-o", "out"}
		}),
		writesPipe("a report is written into a pipe", 2, "no plain file", small("--html", "out")...),
		writesPipe("results for CI are written into a pipe", 2, "a pipe that nobody reads", small("--junit", "out")...),
		writesPipe("an array is written into a pipe", 1, "a pipe that nobody reads", "sim", "k.ptx", "--grid", "1", "--block", "1", "--arg", "u32:out:1", "--save", "out.npy"),
		env(slow(args("a screen of 10**9 columns", 0, "", small()...)), "COLUMNS=1000000000"),
		env(args("a screen below zero columns", 0, "", "list", "knobs"), "COLUMNS=-5"),
		env(args("no home and no cache", 0, "", "list"), "HOME=", "ATTUNE_CACHE=", "XDG_CACHE_HOME="),
		env(args("no folder for temporary files", 0, "", "list"), "TMPDIR=/nosuch"),
		env(args("a summary for CI in a device", 0, "", small()...), "GITHUB_ACTIONS=true", "GITHUB_STEP_SUMMARY=/dev/full"),
		toolkit("a compiler that has no version", 0, "shipped", "exit 1"),
		toolkit("a compiler whose version never ends", 0, "shipped", "yes"),
		toolkit("a compiler that prints escapes", 21, "", good+"printf '\\033]0;owned\\007: error: no\\n'; exit 1"),
		toolkit("a compiler that prints without end", 10, "printed more than", good+"yes 'k.cu(1): warning: no'"),
		toolkit("a compiler that writes without end", 10, "", good+"yes > image.ptx"),
		toolkit("a compiler that takes 4 GB", 10, "memory", good+"head -c 4G /dev/zero | tail -c 4G > /dev/null"),
		toolkit("a compiler that leaves a process behind", 21, "", good+"sleep 500 >/dev/null 2>&1 &\nexit 1"),
		interrupted(toolkit("a compiler that ignores Ctrl-C", 0, "", good+"trap '' INT TERM\nsleep 500")),
		staged("git runs a program of the folder", 0, "", func(a *arena) []string {
			a.gitRepository("[core]\n\tfsmonitor = touch " + a.outside + "/owned; false\n\tpager = touch " + a.outside + "/owned\n")
			return run
		}),
		env(slow(staged("git that never answers", 0, "", func(a *arena) []string {
			a.program("bin/git", "#!/bin/sh\ntrap '' TERM INT\nsleep 500\n")
			return run
		})), "PATH=WORK/bin:"+os.Getenv("PATH")),
		{kind: "input", name: "standard input without end", exit: 1, want: "", stage: func(*arena) []string { return []string{"sim", "/dev/stdin"} }, with: attackOptions{stdin: strings.Repeat("x", 1<<20)}},
	}
}

// gitRepository makes the working directory a repository with a configuration.
func (a *arena) gitRepository(config string) {
	a.t.Helper()
	a.write(".git/HEAD", "ref: refs/heads/main\n")
	a.folder(".git/objects")
	a.folder(".git/refs/heads")
	a.write(".git/config", "[core]\n\trepositoryformatversion = 0\n"+config)
}
