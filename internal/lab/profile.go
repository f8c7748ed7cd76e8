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
	"attune/internal/problem"
	"attune/internal/profile"
	"attune/internal/regular"
	"attune/internal/run"
	"attune/internal/spec"
)

// ProfileRequest says what to profile, and with what.
type ProfileRequest struct {
	Variant spec.Variant
	Shapes  []spec.Shape
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

// Profile takes a variant through the gates, with counters instead of times, and records the run.
// It returns a profile for each shape, and none if the variant is not correct. An error is the
// lab's own.
func (l *Lab) Profile(ctx context.Context, r ProfileRequest) (*run.Run, []*profile.Profile, error) {
	request := Request{Problem: l.problem(), Variants: []spec.Variant{r.Variant}, Shapes: r.Shapes, Seeds: []uint64{r.Seed}, Arch: r.Arch}
	p, err := request.plan(l.Device.facts.Arch)
	if err != nil {
		return nil, nil, err
	}
	reports, remove, err := r.reportFolder()
	if err != nil {
		return nil, nil, fmt.Errorf("write the profiles of %s: %w", r.Variant, err)
	}
	defer remove()
	b := l.startBuilds(ctx, r.Arch, r.Variant)
	defer b.stop()
	refs := l.references(everyRow, nil)
	defer refs.Close()
	a := (&runner{Lab: l, plan: p, builds: b, refs: refs, work: newWork(p, l.Device.Timed())}).newAttempt(p.entries[0].parts[0])
	a.result.Requested.Profile = true
	defer a.session.close()
	profiles, err := a.profileShapes(ctx, r, reports)
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	if err != nil {
		return nil, nil, err
	}
	return a.finish(), profiles, l.recordProfiles(ctx, a.result, profiles, r.Folder)
}

// reportFolder is where the profiler writes its reports. They are megabytes each, so they stay in
// the folder of the request and never go into the ledger. Without a folder they are removed.
func (r ProfileRequest) reportFolder() (folder string, remove func(), err error) {
	if r.Folder != "" {
		return r.Folder, func() {}, os.MkdirAll(r.Folder, 0o755)
	}
	folder, err = os.MkdirTemp("", "attune-profile-")
	return folder, func() { os.RemoveAll(folder) }, err
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
		a.step(fmt.Sprintf("profiling %s", shape), i, len(r.Shapes))
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
func (a *attempt) profileShape(ctx context.Context, r ProfileRequest, shape spec.Shape, reports string) (*profile.Profile, error) {
	facts := *a.result.Facts
	ref, err := a.refs.Get(ctx, a.problem().Plain(shape, r.Seed))
	if err != nil {
		return nil, err
	}
	b := a.build
	_, b.Code = loadable(b.Image, facts)
	job, err := ref.Job(b, facts)
	if err != nil {
		return nil, err
	}
	work, err := a.problem().Work(a.variant, shape, a.problem().DType(a.variant))
	if err != nil {
		return nil, err
	}
	p := &profile.Profile{Shape: shape.String(), Seed: r.Seed, FLOPs: work.FLOPs}
	if r.Profiler != nil {
		name := run.FileName(r.Variant.String(), p.Shape) + ".ncu-rep"
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
		job.Image = b.Image.PTX // the simulator runs PTX, the chip ran the machine code made from it
		outcome, err := r.Simulator.Run(ctx, job)
		if err != nil {
			return nil, fmt.Errorf("on the simulator: %w", err)
		}
		p.Sim = profile.ValuesOf(outcome.Counters)
	}
	p.Metrics = p.Rows()
	p.Insights = a.insights(p.Values(), work)
	if p.NoRoofline = missingWork(work); p.NoRoofline != "" {
		return p, nil
	}
	if p.Roofline, err = profile.NewRoofline(facts, p.FLOPs, p.Values()); err != nil {
		p.NoRoofline = err.Error()
	}
	return p, nil
}

// insights say what limits a launch, with the knobs that the variant has. The traffic of a declared
// problem is compared with its work.
func (a *attempt) insights(v profile.Values, work problem.Work) []profile.Insight {
	if a.problem().Name() != spec.Attention {
		v = maps.Clone(v)
		v[profile.WorkBytes] = work.Bytes
	}
	return Insights(a.problem(), a.variant, v)
}

// Insights say what limits a launch by its counters, with the knobs that the variant has.
func Insights(p problem.Problem, of spec.Variant, v profile.Values) []profile.Insight {
	all := profile.Explain(v, p.Hints())
	for i := range all {
		all[i].Knobs = knobsOf(of, all[i].Knobs)
	}
	return all
}

// knobsOf are the knobs that a variant has. Hints list those of all kernels of a problem.
func knobsOf(v spec.Variant, all []string) []string {
	var own []string
	for _, knob := range all {
		if _, has := v.Value(knob); has {
			own = append(own, knob)
		}
	}
	return own
}

// missingWork is what a roofline needs to know of the work and kernel.toml does not declare.
func missingWork(work problem.Work) string {
	switch {
	case work == (problem.Work{}):
		return spec.File + " declares no [work] flops and no bytes"
	case work.FLOPs <= 0:
		return spec.File + " declares no [work] flops"
	}
	return ""
}

// profileGate fails if one shape does, and passes if all do.
func profileGate(profiles []*profile.Profile) gate.Check {
	all := gate.Check{Status: gate.Pass}
	for _, p := range profiles {
		c := gate.Profile(utilisation(p.Values()))
		if c.Status == gate.Fail || c.Status == gate.NotMeasured && all.Status == gate.Pass {
			all.Status = c.Status
		}
		all.Reasons = append(all.Reasons, p.Shape+": "+strings.Join(c.Reasons, "; "))
	}
	return all
}

// utilisation has the units that can limit a launch. The last one is the maximum over the pipes and
// the issue slots of the multiprocessors.
func utilisation(v profile.Values) gate.Utilisation {
	return gate.Utilisation{Waves: v.Of(profile.Waves), Units: []gate.Unit{
		{Name: "tensor cores", Percent: v.Of(profile.TensorBusy)},
		{Name: "DRAM", Percent: v.Of(profile.DRAMBusy)},
		{Name: "L2", Percent: v.Of(profile.L2Busy)},
		{Name: "L1 and shared memory", Percent: v.Of(profile.L1Busy)},
		{Name: "SM pipes", Percent: v.Of(profile.SMBusy)},
	}}
}

// recordProfiles writes the run into the ledger with the figures and documents of its profiles. A
// folder gets the same files.
func (l *Lab) recordProfiles(ctx context.Context, record *run.Run, profiles []*profile.Profile, folder string) error {
	files, err := l.profileFiles(record.Variant, profiles)
	if folder != "" {
		for name, data := range files {
			err = errors.Join(err, regular.Write(filepath.Join(folder, name), data))
		}
	}
	if err != nil {
		return fmt.Errorf("write the profiles of %s: %w", record.Variant, err)
	}
	return l.record(ctx, record, files)
}

// profileFiles are the figures of all shapes, and the documents rendered from them.
func (l *Lab) profileFiles(variant string, profiles []*profile.Profile) (map[string][]byte, error) {
	if len(profiles) == 0 {
		return nil, nil
	}
	figures, err := json.MarshalIndent(map[string]any{
		"schema_version": run.SchemaVersion, "variant": variant, "profiles": profiles,
	}, "", "  ")
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{"profile.json": append(figures, '\n')}
	return files, l.AddDescription(files, profile.Set{Variant: variant, Profiles: profiles})
}
