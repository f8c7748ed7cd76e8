package launch

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func four() Workers {
	return Workers{
		Count: 4, Creds: "keys/gpu-%a.toml", Class: "nvidia-h200", GPU: "h200", Idle: 10 * time.Minute, Time: 26 * time.Hour, CPUs: 8, Memory: 32,
		Program: "attune", Partition: "gpu,long", Image: "registry.example/attune:0.2.0", Secret: "attune-keys",
	}
}

func written(t *testing.T, write func(*Workers, *bytes.Buffer) error, change func(*Workers)) (string, error) {
	t.Helper()
	w := four()
	change(&w)
	var out bytes.Buffer
	err := write(&w, &out)
	return out.String(), err
}

func slurm(w *Workers, out *bytes.Buffer) error      { return w.WriteSlurm(out) }
func kubernetes(w *Workers, out *bytes.Buffer) error { return w.WriteKubernetes(out) }

// TestSlurm writes a script, which bash and shellcheck read and which finds the key of each worker.
func TestSlurm(t *testing.T) {
	t.Parallel()
	folder := filepath.Join(t.TempDir(), "my keys; 'a'")
	if err := os.Mkdir(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(folder, "attune")
	if err := os.WriteFile(program, []byte("#!/bin/sh\necho \"$ATTUNE_FLEET_CREDS\" \"$@\"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	script, err := written(t, slurm, func(w *Workers) { w.Creds, w.Program = folder+"/gpu-%a.toml", program })
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"\n#SBATCH --array=0-3\n", "\n#SBATCH --partition=gpu,long\n", "\n#SBATCH --gres=gpu:h200:1\n", "\n#SBATCH --time=1-02:00:00\n", "\n#SBATCH --exclusive=user\n"} {
		if !strings.Contains(script, want) {
			t.Errorf("the script does not have %q:\n%s", want, script)
		}
	}
	place := filepath.Join(folder, "workers.sh")
	if err := os.WriteFile(place, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("bash", place)
	cmd.Env = append(os.Environ(), "SLURM_ARRAY_TASK_ID=3")
	out, err := cmd.CombinedOutput()
	if want := folder + "/gpu-3.toml worker --device cuda:0 --idle 10m0s --class nvidia-h200\n"; err != nil || string(out) != want {
		t.Errorf("the script runs %q (%v), want %q", out, err, want)
	}
	if path, err := exec.LookPath("shellcheck"); err == nil {
		if out, err := exec.Command(path, place).CombinedOutput(); err != nil {
			t.Errorf("shellcheck: %s", out)
		}
	}
	one, err := written(t, slurm, func(w *Workers) { w.Count, w.Creds, w.Class, w.GPU, w.Partition = 1, "gpu7.toml", "", "", "" })
	if err != nil || strings.Contains(one, "--array") || strings.Contains(one, "--partition") || strings.Contains(one, "--class") || !strings.Contains(one, "--gres=gpu:1\n") {
		t.Errorf("one worker: %v\n%s", err, one)
	}
}

// TestKubernetes writes a manifest: its indentation is that of YAML, and a pod can do no more than it needs.
func TestKubernetes(t *testing.T) {
	t.Parallel()
	manifest, err := written(t, kubernetes, func(w *Workers) { w.Creds, w.Program = "my keys/gpu-%a.toml", `/opt/a "b"/attune` })
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"--from-file='my keys'\n", "\n  completions: 4\n", "\n  activeDeadlineSeconds: 93600\n", "\n      automountServiceAccountToken: false\n", "\n        runAsNonRoot: true\n",
		"\n            readOnlyRootFilesystem: true\n", "\n              nvidia.com/gpu: 1\n", "\n            secretName: attune-keys\n", `value: "/keys/gpu-$(INDEX).toml"`,
		`command: ["/opt/a \"b\"/attune"]`, `nvidia.com/gpu.product: "h200"`, "\n            defaultMode: 0400\n",
	} {
		if !strings.Contains(manifest, want) {
			t.Errorf("the manifest does not have %q:\n%s", want, manifest)
		}
	}
	before := 0
	for i, line := range strings.Split(manifest, "\n") {
		text := strings.TrimLeft(line, " ")
		indent := len(line) - len(text)
		if strings.Contains(line, "\t") || indent%2 != 0 || indent > before+4 || strings.HasSuffix(line, " ") {
			t.Errorf("line %d is no YAML: %q", i+1, line)
		}
		before = indent
	}
}

// TestRefused refuses values that would be no key, no name, or a line of their own.
func TestRefused(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]func(*Workers){
		"--count 0: want 1 to 1000":                   func(w *Workers) { w.Count = 0 },
		"--count 1001: want 1 to 1000":                func(w *Workers) { w.Count = 1001 },
		"--creds is missing":                          func(w *Workers) { w.Creds = "" },
		"4 workers need a key each":                   func(w *Workers) { w.Creds = "one.toml" },
		"without control characters":                  func(w *Workers) { w.Creds = "a\n#SBATCH --uid=0/%a" },
		`--program "attune\nrm"`:                      func(w *Workers) { w.Program = "attune\nrm" },
		"--program is empty":                          func(w *Workers) { w.Program = "" },
		`the class "a b"`:                             func(w *Workers) { w.Class = "a b" },
		`--gpu "h200\nx"`:                             func(w *Workers) { w.GPU = "h200\nx" },
		"--idle 0s and --time 26h0m0s: want at least": func(w *Workers) { w.Idle = 0 },
		"--cpus 0 and --memory 32":                    func(w *Workers) { w.CPUs = 0 },
	} {
		for name, write := range map[string]func(*Workers, *bytes.Buffer) error{"slurm": slurm, "k8s": kubernetes} {
			if out, err := written(t, write, change); err == nil || !strings.Contains(err.Error(), want) || out != "" {
				t.Errorf("%s: %v, want %q", name, err, want)
			}
		}
	}
	if _, err := written(t, slurm, func(w *Workers) { w.Partition = "gpu --uid=0" }); err == nil || !strings.Contains(err.Error(), "--partition") {
		t.Errorf("a partition: %v", err)
	}
	for want, change := range map[string]func(*Workers){
		"--image": func(w *Workers) { w.Image = "a\nb" }, "--secret": func(w *Workers) { w.Secret = "Keys" }, "a file of a secret": func(w *Workers) { w.Creds = "keys/a b-%a" },
	} {
		if _, err := written(t, kubernetes, change); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
