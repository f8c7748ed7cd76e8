package main

import (
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"attune/internal/fleet"
)

// Flags reach a worker with the values that they were given, and the worker's program takes them.
func TestPassedFlags(t *testing.T) {
	set := func(args []string) (*pflag.FlagSet, deviceOptions, sampleSeed) {
		var o deviceOptions
		var s sampleSeed
		f := pflag.NewFlagSet("run", pflag.ContinueOnError)
		addTimeout(f, &o.limit, &o.launch)
		s.flag(f)
		if err := f.Parse(args); err != nil {
			t.Fatalf("%q: %v", args, err)
		}
		return f, o, s
	}
	first, _, _ := set([]string{"--timeout", "3s", "--sample-seed", "7"})
	words := (&spreadOptions{set: first}).passed()
	if want := []string{"--sample-seed=7", "--timeout=3s"}; !slices.Equal(words, want) {
		t.Errorf("%q, want %q", words, want)
	}
	if _, o, s := set(words); o.limit != 3*time.Second || o.launch != 3*time.Second || s.String() != "7" {
		t.Errorf("%+v, seed %s", o, &s)
	}
	if f, _, _ := set(nil); f.Lookup("timeout").DefValue != "" || len((&spreadOptions{set: f}).passed()) != 0 {
		t.Errorf("timeout %q, %q", f.Lookup("timeout").DefValue, (&spreadOptions{set: f}).passed())
	}
}

// A command that somebody interrupts on a worker's machine has no result, whatever it prints; one whose gate
// fails has.
func TestOutcomeOfInterruptedCommand(t *testing.T) {
	for code, machine := range map[int]bool{exitInterrupted: true, exitCorrectness: false, exitFailure: false} {
		end := exec.Command("sh", "-c", fmt.Sprintf("exit %d", code)).Run()
		found, err := commandOutcome(t.Context(), end, []byte("{}"), "", filepath.Join(t.TempDir(), "ledger"))
		if got := errors.As(err, new(*fleet.MachineError)); got != machine || !machine && (err != nil || found.Exit != code) {
			t.Errorf("exit %d: %+v, %v", code, found, err)
		}
	}
}

// A file of credentials without an address, and the invitation that makes one, say what is missing.
func TestInvitationWithoutAddress(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "gpu7.toml")
	_, errs, _ := printed("fleet", "invite", "gpu7", "--ledger", filepath.Join(dir, "led"), "-o", file)
	if !strings.Contains(errs, "--creds gpu7.toml --fleet tls://HOST:PORT") {
		t.Error(errs)
	}
	_, errs, code := printed("worker", "--creds", file, "--device", "sim")
	if code != exitUsage || !strings.Contains(errs, "gpu7.toml names no server; --fleet tls://host:4222") {
		t.Error(code, errs)
	}
}

// The environment names a fleet, and a class hands the work to it.
func TestFleetOfTheEnvironment(t *testing.T) {
	for _, variable := range []string{fleetVariable, credsVariable} {
		t.Run(variable, func(t *testing.T) {
			t.Setenv(fleetVariable, "")
			t.Setenv(credsVariable, "")
			o := spreadOptions{class: "sim"}
			if o.asked() || o.check() == nil {
				t.Error("a class without a fleet is taken")
			}
			t.Setenv(variable, "something")
			if !o.asked() || o.check() != nil {
				t.Error(o.asked(), o.check())
			}
			if o.class = ""; o.asked() {
				t.Error("the environment alone takes the work away")
			}
		})
	}
}
