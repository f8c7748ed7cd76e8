package web

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"attune/internal/document"
)

// StartRequest is a run that a page or a program asks for. The command line checks it.
type StartRequest struct {
	Variants []string `json:"variants"`
	Device   string   `json:"device,omitempty"`
	Shapes   string   `json:"shapes,omitempty"`
	Seeds    string   `json:"seeds,omitempty"`
	Against  string   `json:"against,omitempty"`
	Quick    bool     `json:"quick,omitempty"`
}

// Job is a run that the server has started as a child process.
type Job struct {
	SchemaVersion int        `json:"schema_version"`
	Number        int        `json:"number"`
	State         string     `json:"state"` // running, finished, failed or cancelled
	Arguments     []string   `json:"arguments"`
	Started       time.Time  `json:"started"`
	Ended         *time.Time `json:"ended,omitempty"`
	ExitCode      *int       `json:"exit_code,omitempty"`
	Progress      *Progress  `json:"progress,omitempty"`
	Messages      []string   `json:"messages"` // of standard error, the last ones
	Runs          []JobRun   `json:"runs"`     // those that were recorded
}

// The states of a job.
const (
	jobRuns      = "running"
	jobFinished  = "finished"
	jobFailed    = "failed"
	jobCancelled = "cancelled"
)

// Progress is a line of `attune run --progress`.
type Progress struct {
	MessageType string  `json:"message_type"` // "progress"
	Entry       int     `json:"entry"`
	Entries     int     `json:"entries"`
	Name        string  `json:"name"`
	Step        string  `json:"step"`
	Done        int     `json:"done"`
	Total       int     `json:"total"`
	Share       float64 `json:"share"` // estimate of the work that is finished
}

// JobRun is a run that a job has recorded.
type JobRun struct {
	ID      string `json:"id"`
	Variant string `json:"variant"`
	Verdict string `json:"verdict"`
}

// jobs are the runs that the server has started. One runs at a time: two would share a GPU and spoil
// each other's times.
type jobs struct {
	command func(StartRequest) ([]string, error)

	mu      sync.Mutex
	all     []*job
	closing bool
}

// maxJobs limits the finished jobs that are listed.
const maxJobs = 20

// job is a Job with its process. changed is closed and replaced at each change.
type job struct {
	Job
	process   *exec.Cmd
	cancelled bool
	changed   chan struct{}
	ended     chan struct{}
}

// start checks a request and starts its process.
func (j *jobs) start(request StartRequest) (Job, error) {
	if j.command == nil {
		return Job{}, failure(http.StatusNotImplemented, "this server starts no runs")
	}
	command, err := j.command(request)
	if err != nil {
		return Job{}, failure(http.StatusBadRequest, "%v", err)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.closing {
		return Job{}, failure(http.StatusServiceUnavailable, "the server is closing")
	}
	number := 1
	if n := len(j.all); n > 0 {
		if last := j.all[n-1]; last.State == jobRuns {
			return Job{}, failure(http.StatusConflict, "job %d runs; wait for it or cancel it", last.Number)
		}
		number = j.all[n-1].Number + 1
	}
	started := &job{
		Job:     Job{SchemaVersion: 1, Number: number, State: jobRuns, Arguments: command[1:], Started: time.Now().UTC(), Messages: []string{}, Runs: []JobRun{}},
		changed: make(chan struct{}), ended: make(chan struct{}),
	}
	if err := j.launch(started, command); err != nil {
		return Job{}, failure(http.StatusInternalServerError, "the run cannot be started: %v", err)
	}
	j.all = append(j.all, started)
	j.all = j.all[max(0, len(j.all)-maxJobs):]
	return started.copy(), nil
}

// launch starts the process and reads its outputs. The process has its own group, so that Ctrl-C at
// the server does not reach it twice.
func (j *jobs) launch(started *job, command []string) error {
	process := exec.Command(command[0], command[1:]...)
	process.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var document bytes.Buffer
	process.Stdout = &document
	messages, err := process.StderrPipe()
	if err != nil {
		return err
	}
	if err := process.Start(); err != nil {
		return err
	}
	started.process = process
	go func() {
		j.readMessages(started, messages)
		err := process.Wait()
		j.end(started, err, document.Bytes())
	}()
	return nil
}

// readMessages takes the lines of standard error: progress and notes.
func (j *jobs) readMessages(of *job, messages io.Reader) {
	const most = 100
	lines := bufio.NewScanner(messages)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var p Progress
		var note struct {
			Message string `json:"message"`
		}
		text := lines.Text()
		if json.Unmarshal([]byte(text), &p) == nil && p.MessageType == "progress" {
			j.update(of, func() { of.Progress = &p })
			continue
		}
		if json.Unmarshal([]byte(text), &note) == nil && note.Message != "" {
			text = note.Message
		}
		j.update(of, func() {
			of.Messages = append(of.Messages, clip(text, 2000))
			of.Messages = of.Messages[max(0, len(of.Messages)-most):]
		})
	}
	_, _ = io.Copy(io.Discard, messages) // a line that is too long must not block the process
}

// end takes the outcome of the process.
func (j *jobs) end(of *job, failed error, document []byte) {
	var found struct {
		Runs []JobRun `json:"runs"`
	}
	_ = json.Unmarshal(document, &found) // a cancelled run has none
	code := of.process.ProcessState.ExitCode()
	j.update(of, func() {
		now := time.Now().UTC()
		of.Ended, of.ExitCode, of.Runs = &now, &code, append(of.Runs, found.Runs...)
		var exit *exec.ExitError
		switch {
		case of.cancelled:
			of.State = jobCancelled
		case failed == nil || errors.As(failed, &exit) && len(found.Runs) > 0: // a gate that failed is a result
			of.State = jobFinished
		default:
			of.State = jobFailed
		}
	})
	close(of.ended)
}

// update changes a job and wakes its followers.
func (j *jobs) update(of *job, change func()) {
	j.mu.Lock()
	defer j.mu.Unlock()
	change()
	close(of.changed)
	of.changed = make(chan struct{})
}

// cancel interrupts a job as Ctrl-C does: what it has recorded stays.
func (j *jobs) cancel(number int) (Job, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	of := j.find(number)
	switch {
	case of == nil:
		return Job{}, failure(http.StatusNotFound, "there is no job %d", number)
	case of.State != jobRuns:
		return Job{}, failure(http.StatusConflict, "job %d is %s already", number, of.State)
	}
	of.cancelled = true
	_ = of.process.Process.Signal(syscall.SIGINT) // a process that has just ended needs none
	return of.copy(), nil
}

// close interrupts the job that runs, and waits for it for a short time before it is killed.
func (j *jobs) close() {
	j.mu.Lock()
	j.closing = true
	var running *job
	if n := len(j.all); n > 0 && j.all[n-1].State == jobRuns {
		running = j.all[n-1]
		running.cancelled = true
		_ = running.process.Process.Signal(syscall.SIGINT)
	}
	j.mu.Unlock()
	if running == nil {
		return
	}
	select {
	case <-running.ended:
	case <-time.After(5 * time.Second):
		_ = syscall.Kill(-running.process.Process.Pid, syscall.SIGKILL) // the group of the child, which this server made
	}
}

func (j *jobs) find(number int) *job {
	i := slices.IndexFunc(j.all, func(k *job) bool { return k.Number == number })
	if i < 0 {
		return nil
	}
	return j.all[i]
}

// get returns a job and a channel that is closed at its next change.
func (j *jobs) get(number int) (Job, <-chan struct{}, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	of := j.find(number)
	if of == nil {
		return Job{}, nil, failure(http.StatusNotFound, "there is no job %d", number)
	}
	return of.copy(), of.changed, nil
}

// list returns the jobs, the newest first.
func (j *jobs) list() []Job {
	j.mu.Lock()
	defer j.mu.Unlock()
	all := []Job{}
	for _, of := range slices.Backward(j.all) {
		all = append(all, of.copy())
	}
	return all
}

// copy is the present state. The caller holds the lock.
func (j *job) copy() Job {
	c := j.Job
	c.Messages, c.Runs = slices.Clone(j.Messages), slices.Clone(j.Runs)
	return c
}

// Line is the command line as the user would type it.
func (j Job) Line() string { return "attune " + strings.Join(j.Arguments, " ") }

// Percent is the estimate of the work that is finished.
func (j Job) Percent() int {
	if j.Progress == nil {
		return 0
	}
	return max(0, min(100, int(100*j.Progress.Share)))
}

// startPage is the form that starts a run, and the jobs.
type startPage struct {
	Kernel   string
	Variants []string
	Shapes   []string
	Jobs     []Job
	Problem  string
	Request  StartRequest
	Variant  string
}

// Devices are the choices of the form.
func (startPage) Devices() []string { return []string{"auto", "sim", "cuda"} }

func (s *Server) startPage(w http.ResponseWriter, r *http.Request) error {
	page, err := s.newStartPage(r.Context())
	if err != nil {
		return err
	}
	page.Variant = r.URL.Query().Get("variant")
	part := "layout.html"
	if r.URL.Query().Get("part") == "jobs" {
		part = "jobs"
	}
	return s.renderPart(w, r, http.StatusOK, "start", part, "Start a run", page)
}

func (s *Server) newStartPage(ctx context.Context) (startPage, error) {
	page := startPage{Jobs: s.jobs.list()}
	for i := range page.Jobs {
		for n, of := range page.Jobs[i].Runs {
			if found, err := s.records.run(ctx, of.ID); err == nil {
				page.Jobs[i].Runs[n].Verdict = document.VerdictInList(found)
			}
		}
	}
	kernel, _, err := s.config.Kernel()
	if err != nil {
		return page, err
	}
	page.Kernel = kernel.Name
	for _, stage := range kernel.Stages {
		page.Variants = append(page.Variants, stage.Name)
	}
	for _, selection := range kernel.Selections {
		page.Variants = append(page.Variants, selection.Name)
	}
	for _, g := range kernel.Groups {
		page.Shapes = append(page.Shapes, g.Name)
	}
	return page, nil
}

// startForm starts a run from the form.
func (s *Server) startForm(w http.ResponseWriter, r *http.Request) error {
	if err := r.ParseForm(); err != nil {
		return failure(http.StatusBadRequest, "the form cannot be read: %v", err)
	}
	request := StartRequest{
		Variants: strings.Fields(r.PostForm.Get("variant")), Device: r.PostForm.Get("device"), Shapes: r.PostForm.Get("shapes"),
		Seeds: r.PostForm.Get("seeds"), Quick: r.PostForm.Has("quick"),
	}
	if _, err := s.jobs.start(request); err != nil {
		page, broken := s.newStartPage(r.Context())
		if broken != nil {
			return broken
		}
		page.Problem, page.Request, page.Variant = err.Error(), request, r.PostForm.Get("variant")
		return s.render(w, r, statusOf(err), "start", "Start a run", page)
	}
	http.Redirect(w, r, "/start", http.StatusSeeOther)
	return nil
}

func (s *Server) tokenForm(w http.ResponseWriter, r *http.Request) error {
	if err := r.ParseForm(); err != nil {
		return failure(http.StatusBadRequest, "the form cannot be read: %v", err)
	}
	return s.signIn(w, r, strings.TrimSpace(r.PostForm.Get("token")), "/start")
}

func (s *Server) cancelForm(w http.ResponseWriter, r *http.Request) error {
	if err := r.ParseForm(); err != nil {
		return failure(http.StatusBadRequest, "the form cannot be read: %v", err)
	}
	number, err := strconv.Atoi(r.PostForm.Get("job"))
	if err != nil {
		return failure(http.StatusBadRequest, "the number of a job is missing")
	}
	if _, err := s.jobs.cancel(number); err != nil {
		return err
	}
	http.Redirect(w, r, "/start", http.StatusSeeOther)
	return nil
}

// jobEvents follows a job: an event "progress" at each change, and "done" at its end.
func (s *Server) jobEvents(w http.ResponseWriter, r *http.Request) error {
	number, err := jobNumber(r)
	if err != nil {
		return err
	}
	if _, _, err := s.jobs.get(number); err != nil {
		return err
	}
	out, err := s.openStream(w)
	if err != nil {
		return err
	}
	defer out.close()
	ticker := time.NewTicker(beatEvery)
	defer ticker.Stop()
	for {
		now, changed, err := s.jobs.get(number)
		if err != nil {
			return nil // it was dropped from the list; the response has begun
		}
		event := "progress"
		if now.State != jobRuns {
			event = "done"
		}
		if out.send(event, "", now) != nil || now.State != jobRuns {
			return nil
		}
		for waiting := true; waiting; {
			select {
			case <-r.Context().Done():
				return nil
			case <-s.done:
				return nil
			case <-ticker.C:
				if out.beat() != nil {
					return nil
				}
			case <-changed:
				waiting = false
			}
		}
	}
}

func jobNumber(r *http.Request) (int, error) {
	number, err := strconv.Atoi(r.PathValue("number"))
	if err != nil {
		return 0, failure(http.StatusNotFound, "%q is no number of a job", clip(r.PathValue("number"), 40))
	}
	return number, nil
}
