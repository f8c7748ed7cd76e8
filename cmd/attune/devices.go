package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"attune/internal/device"
	"attune/internal/device/isolate"
	simdevice "attune/internal/device/sim"
	"attune/internal/lab"
	"attune/internal/run"
)

// Names of devices.
const (
	autoDevice = "auto" // the GPU, or the simulator if there is none
	cudaDevice = "cuda"
	simDevice  = "sim"
)

// defaultLimit limits the time of one job on a device.
const defaultLimit = 60 * time.Second

// deviceOptions select a device.
type deviceOptions struct {
	name      string
	limit     time.Duration
	sanitizer string // tool of compute-sanitizer; empty for none
	simulates bool   // the command also takes the simulator
	times     bool   // the command needs a GPU, for times
	sim       simOptions
}

// flags adds the flags of a command that runs on any device.
func (o *deviceOptions) flags(f *pflag.FlagSet) {
	o.simulates = true
	f.StringVar(&o.name, "device", autoDevice, "cuda, cuda:N, sim; auto: the GPU, else sim")
	f.DurationVar(&o.limit, "timeout", defaultLimit, "limit of one launch or timing")
	o.sim.flags(f, "simulator: ")
}

// gpuFlags adds the flags of a command that needs a GPU.
func (o *deviceOptions) gpuFlags(f *pflag.FlagSet) {
	o.times = true
	f.StringVar(&o.name, "device", cudaDevice, "cuda or cuda:N")
	f.DurationVar(&o.limit, "timeout", defaultLimit, "limit of one launch or timing")
}

// checkGPU refuses options that do not name a GPU.
func (o *deviceOptions) checkGPU(command string) error {
	if o.name == simDevice {
		return fmt.Errorf("the simulator measures no time; %s needs a GPU", command)
	}
	if o.name == autoDevice {
		o.name = cudaDevice // there is no other device to fall back to
	}
	return checkLimit(o.limit)
}

func checkLimit(limit time.Duration) error {
	if limit <= 0 {
		return fmt.Errorf("--timeout %s: want more than 0", limit)
	}
	return nil
}

// findDevice finds the selected device. A GPU is opened once for its facts.
func (a *app) findDevice(ctx context.Context, o deviceOptions) (lab.Device, error) {
	if o.name == simDevice {
		return a.simulator(o), nil
	}
	name := o.name
	if name == autoDevice {
		name = cudaDevice
	}
	open, err := a.opener(name, o.limit, o.sanitizer)
	if err != nil {
		return lab.Device{}, err
	}
	probe, err := a.opener(name, o.limit, "")
	if err != nil {
		return lab.Device{}, err
	}
	d, err := probe(ctx)
	switch {
	case err == nil:
		return lab.GPU(d.Facts(), open), d.Close()
	case o.name == autoDevice && errors.Is(err, device.ErrNoDevice) && o.sanitizer == "":
		if !a.json {
			why, _, _ := strings.Cut(err.Error(), " (") // `attune doctor` shows the details too
			fmt.Fprintf(a.stderr, "attune: %s; the kernels run on the simulator\n", why)
		}
		return a.simulator(o), nil
	case o.simulates && errors.Is(err, device.ErrNoDevice) && o.sanitizer == "":
		err = fmt.Errorf("%w; --device sim runs the kernels without a GPU", err)
	case o.times && errors.Is(err, device.ErrNoDevice):
		err = fmt.Errorf("%w; times need a GPU; attune run --device sim checks the kernels without one", err)
	}
	return lab.Device{}, err
}

// simulator is the simulator with the selected settings.
func (a *app) simulator(o deviceOptions) lab.Device {
	options := o.sim.options()
	options.Limit, options.Printf = o.limit, func(text string) { fmt.Fprint(a.kernels, text) }
	open := func(context.Context) (device.Device, error) { return simdevice.Open(options), nil }
	settings := run.Simulation{Schedules: max(options.Schedules, 1), Automatic: options.Schedules == 0, Checks: options.Checks, Tensor: o.sim.tensor, Strict: options.Strict, AddressSeed: options.AddressSeed}
	return lab.Simulator(simdevice.Open(options).Facts(), open, settings)
}

// opener opens a GPU by name in a child process, under a tool of compute-sanitizer if one is named.
func (a *app) opener(name string, limit time.Duration, sanitizer string) (lab.Opener, error) {
	o, err := a.child(name, limit)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) (device.Device, error) {
		if sanitizer != "" {
			return isolate.StartSanitized(ctx, o, sanitizer)
		}
		return isolate.Start(ctx, o)
	}, nil
}

// child are the options to start the program itself as the server of a GPU.
func (a *app) child(name string, limit time.Duration) (isolate.Options, error) {
	index, err := deviceIndex(name)
	if err != nil {
		return isolate.Options{}, err
	}
	self, err := os.Executable()
	if err != nil {
		return isolate.Options{}, fmt.Errorf("find this program to start it as a device server: %w", err)
	}
	return isolate.Options{Command: []string{self, serverName, strconv.Itoa(index)}, Limit: limit, Stdout: a.kernels, Stderr: a.stderr}, nil
}

// deviceIndex is N for cuda:N, and 0 for cuda.
func deviceIndex(name string) (int, error) {
	kind, number, numbered := strings.Cut(name, ":")
	index := 0
	var err error
	if numbered {
		index, err = strconv.Atoi(number)
	}
	if kind != cudaDevice || err != nil || index < 0 {
		return 0, usageError{fmt.Errorf("unknown device %q; there are auto, cuda, cuda:N and sim", name)}
	}
	return index, nil
}
