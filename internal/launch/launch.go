package launch

import (
	"embed"
	"errors"
	"fmt"
	"io"
	"path"
	"regexp"
	"strconv"
	"strings"
	"text/template"
	"time"

	"attune/internal/fleet"
)

// Index stands for a worker's number, from 0, in the path of its key.
const Index = "%a"

// Workers are the workers that a file starts.
type Workers struct {
	Count   int
	Creds   string        // path of a key; Index stands for the worker's number
	Class   string        // of devices, or its beginning, that a worker must find; empty for any
	GPU     string        // type of the GPU as the scheduler names it; empty for any
	Idle    time.Duration // without a job, after which a worker ends
	Time    time.Duration // after which the scheduler ends it
	CPUs    int
	Memory  int    // GiB
	Program string // attune

	Partition string // of Slurm; empty for the default
	Image     string // of Kubernetes
	Secret    string // of Kubernetes: the keys
}

// maxWorkers limits the workers of one file.
const maxWorkers = 1000

//go:embed slurm.sh kubernetes.yaml
var files embed.FS

var templates = template.Must(template.New("").Funcs(template.FuncMap{"shell": shell, "quote": strconv.Quote}).ParseFS(files, "*"))

// WriteSlurm writes a batch script.
func (w *Workers) WriteSlurm(out io.Writer) error {
	err := w.check()
	if w.Partition != "" && !word.MatchString(w.Partition) {
		err = errors.Join(err, fmt.Errorf("--partition %q: want the name of a partition, or several with commas", w.Partition))
	}
	if err != nil {
		return err
	}
	return templates.ExecuteTemplate(out, "slurm.sh", w)
}

// WriteKubernetes writes the manifest of a job.
func (w *Workers) WriteKubernetes(out io.Writer) error {
	err := w.check()
	if !image.MatchString(w.Image) {
		err = errors.Join(err, fmt.Errorf("--image %q: want an image with attune and nvcc, such as registry.example/attune:0.2.0", w.Image))
	}
	if !label.MatchString(w.Secret) {
		err = errors.Join(err, fmt.Errorf("--secret %q: want the name of a secret: small letters, digits and -", w.Secret))
	}
	if file := path.Base(w.Creds); !keyFile.MatchString(strings.ReplaceAll(file, Index, "0")) {
		err = errors.Join(err, fmt.Errorf("--creds %q: a file of a secret has letters, digits, -, _ and . in its name", w.Creds))
	}
	if err != nil {
		return err
	}
	return templates.ExecuteTemplate(out, "kubernetes.yaml", w)
}

var (
	word    = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.,-]{0,127}$`)
	image   = regexp.MustCompile(`^[a-z0-9][A-Za-z0-9._/:@-]{0,254}$`)
	label   = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)
	keyFile = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,200}$`)
)

// check is everything that is wrong with what both schedulers need.
func (w *Workers) check() error {
	var errs []error
	if w.Count < 1 || w.Count > maxWorkers {
		errs = append(errs, fmt.Errorf("--count %d: want 1 to %d", w.Count, maxWorkers))
	}
	switch {
	case w.Creds == "":
		errs = append(errs, errors.New("--creds is missing: the path of the key of attune fleet invite, such as keys/gpu-%a.toml"))
	case w.Count > 1 && !strings.Contains(w.Creds, Index):
		errs = append(errs, fmt.Errorf("--creds %s: %d workers need a key each; %s stands for the worker's number, as in keys/gpu-%s.toml", w.Creds, w.Count, Index, Index))
	}
	for _, text := range []struct{ flag, value string }{{"creds", w.Creds}, {"program", w.Program}} {
		if strings.ContainsFunc(text.value, func(r rune) bool { return r < ' ' || r == 0x7f || r == '$' }) {
			errs = append(errs, fmt.Errorf("--%s %q: a path without control characters and $ is wanted", text.flag, text.value))
		}
	}
	if w.Program == "" {
		errs = append(errs, errors.New("--program is empty: the path of attune"))
	}
	if w.Class != "" {
		errs = append(errs, fleet.CheckName("class", w.Class))
	}
	if w.GPU != "" && !word.MatchString(w.GPU) {
		errs = append(errs, fmt.Errorf("--gpu %q: want the type as the scheduler names it", w.GPU))
	}
	if w.Idle < time.Second || w.Time < time.Minute {
		errs = append(errs, fmt.Errorf("--idle %s and --time %s: want at least 1s and 1m", w.Idle, w.Time))
	}
	if w.CPUs < 1 || w.Memory < 1 {
		errs = append(errs, fmt.Errorf("--cpus %d and --memory %d: want at least 1", w.CPUs, w.Memory))
	}
	return errors.Join(errs...)
}

// Last is the number of the last worker.
func (w *Workers) Last() int { return w.Count - 1 }

// Seconds is the time limit.
func (w *Workers) Seconds() int { return int(w.Time.Seconds()) }

// Slurm is a duration as sbatch reads it.
func (w *Workers) Slurm(d time.Duration) string {
	minutes := int(d.Minutes())
	return fmt.Sprintf("%d-%02d:%02d:00", minutes/1440, minutes/60%24, minutes%60)
}

// CredsPath is the path of a key as a word of the shell. index is the expansion of the worker's number.
func (w *Workers) CredsPath(index string) string {
	parts := strings.Split(w.Creds, Index)
	for i, part := range parts {
		if parts[i] = shell(part); part == "" {
			parts[i] = ""
		}
	}
	return strings.Join(parts, `"`+index+`"`)
}

// CredsFile is the path of a key in a container.
func (w *Workers) CredsFile() string {
	return "/keys/" + strings.ReplaceAll(path.Base(w.Creds), Index, "$(INDEX)")
}

// Folder is the folder of the keys as a word of the shell.
func (w *Workers) Folder() string { return shell(path.Dir(w.Creds)) }

var plain = regexp.MustCompile(`^[A-Za-z0-9_./:@%+=,-]+$`)

// shell is a text as one word of the shell.
func shell(text string) string {
	if plain.MatchString(text) {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}
