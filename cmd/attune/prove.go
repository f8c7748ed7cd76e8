package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"

	"attune/internal/lab"
	"attune/internal/spec"
)

// proveOptions are the flags of list that ask for a proof.
type proveOptions struct {
	asked bool
	arch  string
}

func (o proveOptions) check(args []string) error {
	switch {
	case o.asked && !slices.Equal(args, []string{"knobs"}):
		return errors.New("--prove is about knobs; write `attune list knobs --prove`")
	case o.arch != "" && !o.asked:
		return errors.New("--arch goes with --prove; write `attune list knobs --prove --arch " + o.arch + "`")
	}
	return nil
}

func (a *app) prove(ctx context.Context, o proveOptions, kernel *spec.Kernel, folder fs.FS) error {
	images, compiler, err := a.builder(ctx, folder)
	if err != nil {
		return err
	}
	if compiler == nil {
		return fmt.Errorf("--prove builds variants that are not shipped: %w", a.noCompiler)
	}
	status := a.status()
	defer status.Clear()
	var at lab.Event
	l := &lab.Lab{Kernel: kernel, Builder: images, Watch: func(e lab.Event) {
		at = e
		status.Set("%s", statusText(e))
	}}
	status.Set("compiling")
	proof, err := l.Prove(ctx, lab.ProofRequest{Arch: o.arch})
	status.Clear()
	switch {
	case ctx.Err() != nil && at.Total == 0:
		return errors.New("interrupted before the first departure was built")
	case ctx.Err() != nil:
		return fmt.Errorf("interrupted; %d of %d departures were built, and are kept", at.Done+1, at.Total)
	case err != nil:
		return err
	}
	if a.json {
		err = a.printJSON(struct {
			SchemaVersion int    `json:"schema_version"`
			Kernel        string `json:"kernel"`
			*lab.Proof
		}{1, kernel.Name, proof})
	} else {
		out := &strings.Builder{}
		printProof(out, kernel.Name, proof)
		_, err = io.WriteString(a.stdout, out.String())
	}
	if err == nil && proof.Failed() {
		err = gateError{exitSomeFailed}
	}
	return err
}

// printProof writes what each value does around which stages, and the sum.
func printProof(w io.Writer, kernel string, p *lab.Proof) {
	arch := p.Arch
	if arch == "" {
		arch = "the newest architecture of each stage"
	}
	fmt.Fprintf(w, "knobs of %s, one departure from each stage, for %s\n", kernel, arch)
	count := map[lab.Fate]int{}
	for _, k := range p.Knobs {
		count[k.Fate]++
		fate := string(k.Fate)
		if k.Fate == lab.Dead {
			fate = "DEAD"
		}
		fmt.Fprintf(w, "  %s: %s\n", k.Knob, fate)
		for _, v := range k.Values {
			value := fmt.Sprint(v.Value)
			for _, part := range []struct {
				what string
				in   []string
			}{{"alive", v.Alive}, {"equal", v.Equal}, {"not allowed", v.NotAllowed}, {"broken", v.Broken}, {"own", v.Own}} {
				if len(part.in) > 0 {
					fmt.Fprintf(w, "    %5s  %-11s  %s\n", value, part.what, strings.Join(part.in, " "))
					value = ""
				}
			}
		}
	}
	fmt.Fprintf(w, "%d alive, %d dead, %d untried (with one value, or bound to others)\n", count[lab.Alive], count[lab.Dead], count[lab.Untried])
}
