package lab

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"

	"attune/internal/device"
	"attune/internal/gate"
	"attune/internal/ledger"
	"attune/internal/profile"
	"attune/internal/report"
	"attune/internal/run"
	"attune/internal/spec"
	"attune/internal/tensor"
)

// ProfileRequest is what to profile, and with what.
type ProfileRequest struct {
	Variant spec.Variant
	Shapes  []tensor.Shape
	Seed    uint64
	Arch    string

	Profiler   Profiler      // counts on the chip; nil where the simulator is the device, or where there is none
	NoProfiler string        // why a chip has none
	Simulator  device.Device // counts the same launches; nil where it is not asked for
	Instead    device.Device // counts them where the chip's own counters cannot be had: the simulator
	Folder     string        // gets figures, tables, plots and Nsight Compute's reports; may be empty
}

// Profiler counts a launch on a chip and writes its report into a file: profile.Nsight is one.
type Profiler interface {
	Capture(ctx context.Context, job device.Job, report string) (*profile.Capture, error)
}

// Profile takes a variant through the gates, with counters in place of times, and records the run. What the counters say of each shape stands beside it. There
// are no profiles of a variant that is not right: an error is the lab's own.
func (l *Lab) Profile(ctx context.Context, r ProfileRequest) (*run.Run, []*profile.Profile, error) {
	asked := Request{Variants: []spec.Variant{r.Variant}, Shapes: r.Shapes, Seeds: []uint64{r.Seed}, Arch: r.Arch}
	if err := asked.Check(); err != nil {
		return nil, nil, err
	}
	builds := l.startBuilds(ctx, asked, asked.Variants)
	defer builds.stop()
	later := gate.Unmeasured("an earlier gate failed")
	a := &attempt{
		lab: l, request: asked, variant: r.Variant, references: newReferences(), record: l.newRecord(asked, r.Variant),
		gates: gate.Gates{Resources: later, Correctness: later, Performance: later, Profile: later},
	}
	a.record.Asked.Profile = true
	defer func() {
		if a.device != nil {
			a.device.Close()
		}
	}()
	work, err := os.MkdirTemp("", "attune-profile-")
	if err != nil {
		return nil, nil, err
	}
	defer os.RemoveAll(work)
	profiles, err := a.profiled(ctx, builds, r, work)
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	if err != nil {
		return nil, nil, err
	}
	a.record.SetGates(a.gates)
	a.record.Verdict = a.gates.Verdict(false)
	return a.record, profiles, l.recordProfiles(ctx, a.record, profiles, r.Folder, work)
}

// profiled goes through the gates as far as they let it.
func (a *attempt) profiled(ctx context.Context, b *builds, r ProfileRequest, work string) ([]*profile.Profile, error) {
	if err := a.resources(b); err != nil || a.gates.Resources.Status == gate.Fail {
		return nil, err
	}
	if err := a.open(ctx); err != nil {
		return nil, err
	}
	if err := a.correctness(ctx); err != nil || a.gates.Correctness.Status != gate.Pass {
		return nil, err
	}
	facts := a.device.Facts()
	a.device.Close() // a GPU may be for one process at a time, and the profiler brings its own
	a.device = nil
	a.gates.Performance = gate.Unmeasured("a profile takes counters, no times; `attune run` takes them")
	if r.NoProfiler != "" {
		r = r.without(r.NoProfiler)
	}
	var profiles []*profile.Profile
	for i, shape := range r.Shapes {
		a.tell(fmt.Sprintf("profiling %s", shape), i, len(r.Shapes))
		p, err := a.profile(ctx, r, facts, shape, work)
		if errors.Is(err, profile.ErrNoPermission) && r.Instead != nil {
			r = r.without(err.Error())
			p, err = a.profile(ctx, r, facts, shape, work)
		}
		if err != nil {
			return nil, fmt.Errorf("profile %s on %s: %w", r.Variant, shape, err)
		}
		profiles = append(profiles, p)
	}
	if a.gates.Profile = profileGate(profiles); r.NoProfiler != "" {
		a.gates.Profile = gate.Unmeasured(r.NoProfiler)
	}
	return profiles, nil
}

// without is the request with nothing to count on the chip, and why: what the simulator counts, and the gates before the last, can be had all the
// same.
func (r ProfileRequest) without(why string) ProfileRequest {
	r.Profiler, r.NoProfiler, r.Simulator = nil, why, r.Instead
	return r
}

// profile counts one launch, on every side that was asked for, and says what follows.
func (a *attempt) profile(ctx context.Context, r ProfileRequest, facts device.Facts, shape tensor.Shape, work string) (*profile.Profile, error) {
	inputs := tensor.Draw(shape, r.Seed, tensor.Options{})
	job := newJob(a.image, facts, inputs)
	p := &profile.Profile{Shape: shape.String(), Seed: r.Seed, FLOPs: shape.FLOPs()}
	if r.Profiler != nil {
		name := fileName(r.Variant.String(), shape) + reportSuffix
		capture, err := r.Profiler.Capture(ctx, job, filepath.Join(work, name))
		if err != nil {
			return nil, err
		}
		if r.Folder != "" {
			p.Report = name
		}
		p.Ncu, p.Unknown = profile.ValuesOf(capture.Counters), capture.Unknown
	}
	if r.Simulator != nil {
		job.Image = a.image.PTX // the same launch, of what the machine code was made from
		outcome, err := r.Simulator.Run(ctx, job)
		if err != nil {
			return nil, fmt.Errorf("on the simulator: %w", err)
		}
		p.Sim = profile.ValuesOf(outcome.Counters)
	}
	p.Metrics = p.Rows()
	p.Insights = profile.Explain(p.Values(), func(knob string) bool { _, has := r.Variant.Value(knob); return has })
	roofline, err := profile.NewRoofline(facts, p.FLOPs, p.Values())
	if err != nil {
		p.NoRoofline = err.Error()
	}
	p.Roofline = roofline
	return p, nil
}

// profileGate fails where one shape does, and passes where all do.
func profileGate(profiles []*profile.Profile) gate.Check {
	all := gate.Check{Status: gate.Pass}
	for _, p := range profiles {
		v := p.Values()
		c := gate.Profile(gate.Utilisation{Tensor: v.Of(profile.TensorBusy), DRAM: v.Of(profile.DRAMBusy)})
		if c.Status == gate.Fail || c.Status == gate.NotMeasured && all.Status == gate.Pass {
			all.Status = c.Status
		}
		all.Reasons = append(all.Reasons, p.Shape+": "+strings.Join(c.Reasons, "; "))
	}
	return all
}

// recordProfiles writes the run into the ledger with the figures, tables and plots of its profiles.
// If the request has a folder, it gets the same files and Nsight Compute's reports.
func (l *Lab) recordProfiles(ctx context.Context, record *run.Run, profiles []*profile.Profile, folder, work string) error {
	record.ID = ledger.NewID(record.Time, record.Stage)
	files, err := l.documents(record)
	if err != nil {
		return err
	}
	beside, err := profileFiles(record, profiles, work)
	if err != nil {
		return err
	}
	if folder != "" {
		if err := writeFiles(folder, beside); err != nil {
			return fmt.Errorf("write the profiles of %s: %w", record.Variant, err)
		}
		maps.DeleteFunc(beside, func(name string, _ []byte) bool { return strings.HasSuffix(name, reportSuffix) })
	}
	maps.Copy(files, beside)
	if _, err := l.Ledger.Record(ctx, files); err != nil {
		record.ID = ""
		return err
	}
	return nil
}

const (
	// profilesName is the file with all figures.
	profilesName = "profile.json"
	// reportSuffix ends the names of Nsight Compute's own reports. They are megabytes each, so they
	// go only to the folder of the request and never into the ledger.
	reportSuffix = ".ncu-rep"
)

// profileFiles are the figures of all shapes, and a report, a table and a plot for each that has them.
func profileFiles(record *run.Run, profiles []*profile.Profile, work string) (map[string][]byte, error) {
	if len(profiles) == 0 {
		return nil, nil
	}
	files := map[string][]byte{}
	figures, err := json.MarshalIndent(map[string]any{"schema_version": run.SchemaVersion, "variant": record.Variant, "profiles": profiles}, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("write the profiles of %s: %w", record.Variant, err)
	}
	files[profilesName] = append(figures, '\n')
	var tables, plot bytes.Buffer
	for _, p := range profiles {
		shape, err := tensor.ParseShape(p.Shape)
		if err != nil {
			return nil, err
		}
		name := fileName(record.Variant, shape)
		plotName := ""
		if p.Roofline != nil {
			plot.Reset()
			plotName = name + ".svg"
			if err := report.RooflinePlot(&plot, record.Variant, p); err != nil {
				return nil, err
			}
			files[plotName] = bytes.Clone(plot.Bytes())
		}
		if err := report.ProfileMarkdown(&tables, record.Variant, p, plotName); err != nil {
			return nil, err
		}
		if p.Report != "" {
			if files[p.Report], err = os.ReadFile(filepath.Join(work, p.Report)); err != nil {
				return nil, err
			}
		}
	}
	files["profile.md"] = tables.Bytes()
	return files, nil
}

// fileName is a name for a file about a variant on a shape.
func fileName(variant string, shape tensor.Shape) string {
	return strings.NewReplacer("+", "-", "=", "-", ":", "-").Replace(variant + "-" + shape.String())
}

func writeFiles(folder string, files map[string][]byte) error {
	wrong := []error{os.MkdirAll(folder, 0o755)}
	for name, text := range files {
		wrong = append(wrong, os.WriteFile(filepath.Join(folder, name), text, 0o644))
	}
	return errors.Join(wrong...)
}
