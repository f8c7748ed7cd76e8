package lab

import (
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
	"attune/internal/profile"
	"attune/internal/run"
	"attune/internal/spec"
	"attune/internal/tensor"
)

// ProfileRequest says what to profile, and with what.
type ProfileRequest struct {
	Variant spec.Variant
	Shapes  []tensor.Shape
	Seed    uint64
	Arch    string

	Profiler   Profiler      // counts on the chip; nil if the device is the simulator, or without a profiler
	NoProfiler string        // why a chip has no profiler
	Simulator  device.Device // counts the same launches; nil if that is not requested
	Fallback   device.Device // the simulator, for chips whose counters cannot be read
	Folder     string        // gets figures, documents and the profiler's reports; may be empty
}

// Profiler counts a launch on a chip and writes its report into a file. profile.Nsight is one.
type Profiler interface {
	Capture(ctx context.Context, job device.Job, report string) (*profile.Capture, error)
}

// Profile takes a variant through the gates, with counters instead of times, and records the run. It
// returns a profile for each shape, and none if the variant is not correct. An error is the lab's own.
func (l *Lab) Profile(ctx context.Context, r ProfileRequest) (*run.Run, []*profile.Profile, error) {
	request := Request{Variants: []spec.Variant{r.Variant}, Shapes: r.Shapes, Seeds: []uint64{r.Seed}, Arch: r.Arch}
	p, err := request.plan(l.Device.facts.Arch)
	if err != nil {
		return nil, nil, err
	}
	b := l.startBuilds(ctx, r.Arch, r.Variant)
	defer b.stop()
	a := l.newAttempt(p, p.entries[0].parts[0], b, newReferences())
	a.record.Requested.Profile = true
	defer a.session.close()
	reports, err := os.MkdirTemp("", "attune-profile-")
	if err != nil {
		return nil, nil, err
	}
	defer os.RemoveAll(reports)
	profiles, err := a.profileShapes(ctx, r, reports)
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	if err != nil {
		return nil, nil, err
	}
	return a.finish(), profiles, l.recordProfiles(ctx, a.record, profiles, r.Folder, reports)
}

// profileShapes goes through the gates until one fails.
func (a *attempt) profileShapes(ctx context.Context, r ProfileRequest, reports string) ([]*profile.Profile, error) {
	if err := a.resources(); err != nil || a.gates.Resources.Status == gate.Fail {
		return nil, err
	}
	if err := a.open(ctx); err != nil {
		return nil, err
	}
	if err := a.correctness(ctx); err != nil || a.gates.Correctness.Status != gate.Pass {
		return nil, err
	}
	a.session.close() // the profiler starts its own process, and a GPU may allow only one
	a.gates.Performance = gate.Unmeasured("a profile takes counters, no times; `attune run` takes them")
	if r.NoProfiler != "" {
		r = r.withoutProfiler(r.NoProfiler)
	}
	var profiles []*profile.Profile
	for i, shape := range r.Shapes {
		a.progress(fmt.Sprintf("profiling %s", shape), i, len(r.Shapes))
		p, err := a.profileShape(ctx, r, shape, reports)
		if errors.Is(err, profile.ErrNoPermission) && r.Fallback != nil {
			r = r.withoutProfiler(err.Error())
			p, err = a.profileShape(ctx, r, shape, reports)
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

// withoutProfiler is the request with the simulator instead of the profiler, for a reason.
func (r ProfileRequest) withoutProfiler(why string) ProfileRequest {
	r.Profiler, r.NoProfiler, r.Simulator = nil, why, r.Fallback
	return r
}

// profileShape counts one launch on the chip, on the simulator or on both, and derives the metrics.
func (a *attempt) profileShape(ctx context.Context, r ProfileRequest, shape tensor.Shape, reports string) (*profile.Profile, error) {
	facts := *a.record.Facts
	job := newJob(a.image, facts, tensor.Draw(shape, r.Seed, tensor.Options{}))
	p := &profile.Profile{Shape: shape.String(), Seed: r.Seed, FLOPs: shape.FLOPs()}
	if r.Profiler != nil {
		name := run.FileName(r.Variant.String(), p.Shape) + reportSuffix
		capture, err := r.Profiler.Capture(ctx, job, filepath.Join(reports, name))
		if err != nil {
			return nil, err
		}
		if r.Folder != "" {
			p.Report = name
		}
		p.Ncu, p.Unknown = profile.ValuesOf(capture.Counters), capture.Unknown
	}
	if r.Simulator != nil {
		job.Image = a.image.PTX // the simulator runs PTX, the chip ran the machine code made from it
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

// profileGate fails if one shape does, and passes if all do.
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

const (
	profilesName = "profile.json" // the figures of all shapes
	// reportSuffix ends the names of the profiler's reports. They are megabytes each, so they go only
	// into the folder of the request and never into the ledger.
	reportSuffix = ".ncu-rep"
)

// recordProfiles writes the run into the ledger with the figures and documents of its profiles. The
// folder of the request gets the same files and the profiler's reports.
func (l *Lab) recordProfiles(ctx context.Context, record *run.Run, profiles []*profile.Profile, folder, reports string) error {
	files, err := l.profileFiles(record.Variant, profiles, reports)
	if err != nil {
		return fmt.Errorf("write the profiles of %s: %w", record.Variant, err)
	}
	if folder != "" {
		if err := writeFiles(folder, files); err != nil {
			return fmt.Errorf("write the profiles of %s: %w", record.Variant, err)
		}
		maps.DeleteFunc(files, func(name string, _ []byte) bool { return strings.HasSuffix(name, reportSuffix) })
	}
	return l.record(ctx, record, files)
}

// profileFiles are the figures of all shapes, the documents rendered from them, and the profiler's
// reports.
func (l *Lab) profileFiles(variant string, profiles []*profile.Profile, reports string) (map[string][]byte, error) {
	if len(profiles) == 0 {
		return nil, nil
	}
	figures, err := json.MarshalIndent(map[string]any{
		"schema_version": run.SchemaVersion, "variant": variant, "profiles": profiles,
	}, "", "  ")
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{profilesName: append(figures, '\n')}
	if l.RenderProfiles != nil {
		rendered, err := l.RenderProfiles(variant, profiles)
		if err != nil {
			return nil, err
		}
		maps.Copy(files, rendered)
	}
	for _, p := range profiles {
		if p.Report == "" {
			continue
		}
		if files[p.Report], err = os.ReadFile(filepath.Join(reports, p.Report)); err != nil {
			return nil, err
		}
	}
	return files, nil
}

func writeFiles(folder string, files map[string][]byte) error {
	failed := []error{os.MkdirAll(folder, 0o755)}
	for name, text := range files {
		failed = append(failed, os.WriteFile(filepath.Join(folder, name), text, 0o644))
	}
	return errors.Join(failed...)
}
