package autotune

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"attune/internal/array"
	"attune/internal/device"
	"attune/internal/form"
	"attune/internal/fp8"
	"attune/internal/half"
	"attune/internal/probe"
	"attune/internal/toolchain"
)

// Lab is what is tuned: the portable kernels on a device.
type Lab struct {
	Device   device.Device
	Facts    device.Facts // of the device, with the architecture whose forms it shall launch
	Kernels  []fs.FS
	Progress func(step string, done, total int, left time.Duration)
	Note     func(text string)

	table  *form.Table
	images map[string]*toolchain.Image // by variant
	normal map[array.DType][]byte
}

// Measurement are the rates of a GPU and the times of forms there, and the choices that follow.
type Measurement struct {
	form.Measured
	Probe *probe.Probe
	Times []Time
}

// Time are the times of a problem.
type Time struct {
	Problem string     `json:"problem"`
	Held    bool       `json:"held_out,omitempty"` // it tests the choices
	Rule    string     `json:"rule"`               // the variant that the libraries choose without a selection
	Forms   []FormTime `json:"forms"`
}

// FormTime is the time of a form, with the blocks of a tile that the libraries choose.
type FormTime struct {
	Variant string  `json:"variant"`
	Splits  int     `json:"splits,omitempty"` // 0 for 1
	US      float64 `json:"us"`
}

// File is the selection as the libraries read it, with the rates and times.
func (m *Measurement) File() (*form.Measured, error) {
	file := m.Measured
	var errs [2]error
	file.Probe, errs[0] = json.Marshal(m.Probe)
	file.Times, errs[1] = json.Marshal(m.Times)
	return &file, errors.Join(errs[:]...)
}

// Options say what is measured.
type Options struct {
	Problems []Problem
	Budget   time.Duration // of all; 0 for none
	Load     time.Duration // of the probe
}

// samples of each form, which take turns.
const samples = 5

// Measure probes the device and times the problems, until the budget is spent or the context ends. What
// was measured until then is returned with the error.
func (l *Lab) Measure(ctx context.Context, o Options) (*Measurement, error) {
	started := time.Now()
	l.images, l.normal = map[string]*toolchain.Image{}, map[array.DType][]byte{}
	m := &Measurement{Measured: form.Measured{
		SchemaVersion: form.MeasuredVersion, GPU: l.Facts.Name, Arch: l.Facts.Arch, Multiprocessors: l.Facts.Multiprocessors, Driver: l.Facts.Driver,
		Time: started.UTC().Format(time.RFC3339),
	}}
	var err error
	if l.table, err = form.PortableTable(l.Kernels, l.Facts); err != nil {
		return m, err
	}
	total := len(o.Problems)
	progress := func(step string) { l.Progress(step, 0, total, 0) }
	if m.Probe, err = probe.Measure(ctx, l.Device, probe.Options{Load: o.Load, Progress: progress}); err != nil {
		return m, err
	}
	timing := time.Now()
	for i, p := range o.Problems {
		if o.Budget > 0 && time.Since(started) >= o.Budget {
			l.Note(fmt.Sprintf("the budget of %s is spent: %d of %d problems are timed", o.Budget, i, total))
			break
		}
		l.Progress(p.String(), i, total, left(time.Since(timing), i, total, o.Budget-time.Since(started), o.Budget > 0))
		row, err := l.time(ctx, p)
		if err != nil {
			return m, fmt.Errorf("%s: %w", p, err)
		}
		if row != nil {
			m.Times = append(m.Times, *row)
		}
	}
	return m, nil
}

// left is the time until all problems are timed, or the budget is spent; 0 if it is unknown.
func left(spent time.Duration, done, total int, budget time.Duration, limited bool) time.Duration {
	if done == 0 {
		return 0
	}
	rest := spent / time.Duration(done) * time.Duration(total-done)
	if limited {
		rest = min(rest, max(budget, 0))
	}
	return rest
}

// time times the forms of a problem; nil if fewer than one computes it.
func (l *Lab) time(ctx context.Context, p Problem) (*Time, error) {
	rule, err := l.table.Plan(p.problem())
	if err != nil {
		return nil, err
	}
	candidates, err := l.table.Candidates(p.problem())
	if err != nil {
		return nil, err
	}
	isRule := func(c *form.Call) bool { return c.Form.Variant() == rule.Form.Variant() }
	if !slices.ContainsFunc(candidates, isRule) { // for more columns than another
		candidates = append(candidates, rule)
	}
	row := &Time{Problem: p.String(), Held: p.Held, Rule: rule.Form.Variant()}
	var jobs []device.Job
	for _, c := range candidates {
		job, err := l.job(ctx, p, c)
		if err != nil {
			return nil, err
		}
		jobs = append(jobs, job)
	}
	series, err := l.Device.Time(ctx, jobs, device.Plan{Samples: samples})
	if failure := device.Classify(err); err != nil && (ctx.Err() != nil || failure.LosesDevice()) {
		return nil, errors.Join(ctx.Err(), err)
	}
	if err != nil {
		l.Note(fmt.Sprintf("%s is left out: %v", p, err))
		return nil, nil
	}
	for i, s := range series {
		if s.Check != nil && len(s.Check.Findings) > 0 {
			l.Note(fmt.Sprintf("%s on %s is left out: %s", candidates[i].Form.Variant(), p, s.Check.Findings[0].Detail))
			continue
		}
		one := FormTime{Variant: candidates[i].Form.Variant(), US: median(s.Seconds) * 1e6}
		if n := candidates[i].Splits(); n > 1 {
			one.Splits = n
		}
		row.Forms = append(row.Forms, one)
	}
	return row, nil
}

func median(all []float64) float64 {
	sorted := slices.Sorted(slices.Values(all))
	return sorted[len(sorted)/2]
}

// job is the launch of a form on random tensors.
func (l *Lab) job(ctx context.Context, p Problem, c *form.Call) (device.Job, error) {
	if err := l.load(ctx, c.Form); err != nil {
		return device.Job{}, err
	}
	const workspace = firstAddress >> 1
	launches := c.Launches(workspace, l.Facts)
	launch := launches[len(launches)-1]
	job := launch.Job
	job.Image = c.Form.PTX()
	for i := range job.Args {
		arg := &job.Args[i]
		if launch.Addresses[i] == 0 || !arg.IsBuffer() {
			continue
		}
		bytes := arg.BufferBytes()
		switch name := arg.Name; {
		case name == "q":
			*arg = device.In(l.tensor(array.BF16, bytes, 0))
		case name == "k":
			*arg = device.In(l.tensor(p.KV, bytes, 1))
		case name == "v":
			*arg = device.In(l.tensor(p.KV, bytes, 2))
		case strings.HasPrefix(name, "o"):
			continue
		default: // the workspace
			*arg = device.Arg{Scratch: bytes}
		}
		arg.Name = launch.Job.Args[i].Name
	}
	return job, nil
}

// load gives a form its shipped image.
func (l *Lab) load(ctx context.Context, f *form.Form) error {
	image := l.images[f.Variant()]
	if image == nil {
		var err error
		if image, _, err = toolchain.NewBuilder(f.Folder, nil, "").Build(ctx, f.Target); err != nil {
			return err
		}
		l.images[f.Variant()] = image
	}
	f.Image = image
	return nil
}

// normalValues are so many that no block of a launch sees them twice.
const normalValues = 1 << 22

// tensor has normal values of a type, from another place for each number.
func (l *Lab) tensor(t array.DType, bytes, number int) []byte {
	values := l.normal[t]
	if values == nil {
		random := rand.New(rand.NewPCG(7, 7)) //nolint:gosec // inputs
		for range normalValues {
			x := float32(random.NormFloat64())
			if t == array.E4M3 {
				values = append(values, byte(fp8.E4M3FromFloat32(x)))
				continue
			}
			code := half.BFloat16FromFloat32(x)
			values = append(values, byte(code), byte(code>>8))
		}
		l.normal[t] = values
	}
	data := make([]byte, 0, bytes)
	for at := number * len(values) / 3; len(data) < bytes; at = 0 {
		data = append(data, values[at:at+min(len(values)-at, bytes-len(data))]...)
	}
	return data
}
