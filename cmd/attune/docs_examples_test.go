package main

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"attune/internal/python"
)

var (
	attuneCommand = regexp.MustCompile(`\battune ((?:exec|nvcc|toolchain|run|sim)\b[^|&)\n]*)`)
	pytestOption  = regexp.MustCompile(`--attune-[a-z]+`)
	quoted        = regexp.MustCompile(`--attune-flags "([^"]*)"`)
)

// The workflow and the container file of examples/ci have commands and flags that exist.
func TestExampleWorkflow(t *testing.T) {
	plugin := readDocument(t, "python/attune_sim/plugin.py")
	commands := 0
	for _, path := range []string{"examples/ci/kernels.yml", "examples/ci/Containerfile"} {
		text := readDocument(t, path)
		for _, m := range attuneCommand.FindAllStringSubmatch(text, -1) {
			commands++
			checkCommand(t, path, strings.Fields(m[1]))
		}
		for _, m := range quoted.FindAllStringSubmatch(text, -1) {
			checkCommand(t, path, append([]string{"exec", "--serve"}, strings.Fields(m[1])...))
		}
		for _, option := range pytestOption.FindAllString(text, -1) {
			if !strings.Contains(plugin, `"`+option+`"`) {
				t.Errorf("%s: the plugin has no %s", path, option)
			}
		}
	}
	if commands < 4 {
		t.Errorf("%d commands of attune; the pattern does not find them", commands)
	}
	if _, err := exec.LookPath("python3"); err == nil {
		checkYAML(t)
	}
}

// checkCommand checks a command line without running it.
func checkCommand(t *testing.T, path string, args []string) {
	t.Helper()
	cmd, rest, err := (&app{}).rootCommand().Find(args)
	if err == nil && !cmd.DisableFlagParsing {
		err = cmd.ParseFlags(rest)
	}
	if err != nil {
		t.Errorf("%s: attune %s: %v", path, strings.Join(args, " "), err)
	}
}

// checkYAML reads the workflow, if Python can.
func checkYAML(t *testing.T) {
	t.Helper()
	interpreter, err := python.Find("")
	if err != nil || exec.Command(interpreter, "-c", "import yaml").Run() != nil {
		t.Log("without Python's yaml: the workflow is not parsed")
		return
	}
	const program = `import sys, yaml
w = yaml.safe_load(open(sys.argv[1]))
steps = w["jobs"]["simulate"]["steps"]
assert all(("run" in s) != ("uses" in s) for s in steps), steps
assert w[True] == "pull_request" and w["permissions"]["security-events"] == "write"
print(sum("upload-sarif" in s.get("uses", "") for s in steps))`
	out, err := exec.Command(interpreter, "-c", program, filepath.Join(root, "examples/ci/kernels.yml")).CombinedOutput()
	if err != nil || strings.TrimSpace(string(out)) != "2" {
		t.Errorf("the workflow: %v\n%s", err, out)
	}
}
