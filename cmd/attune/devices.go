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
	"attune/internal/oracle"
	"attune/internal/run"
	"attune/internal/sim/mem"
)

// Names of devices.
const (
	autoDevice = "auto" // the GPU, or the simulator if there is none
	cudaDevice = "cuda"
	simDevice  = "sim"
)

// defaultLimit limits the time of one timing on a GPU and of one job on the simulator.
const defaultLimit = 60 * time.Second

// defaultLaunchLimit limits the time of one checked launch on a GPU, which takes milliseconds. A
// kernel that never ends costs this time.
const defaultLaunchLimit = 20 * time.Second

// sanitizerAuto runs compute-sanitizer on the kernels that the simulator refuses.
const sanitizerAuto = "auto"

// besideSchedules is the least number of schedules of the simulator beside a GPU.
const besideSchedules = 4

// deviceOptions select a device.
type deviceOptions struct {
	name      string
	limit     time.Duration
	launch    time.Duration // limit of a checked launch on a GPU; 0 for limit
	sanitizer string        // tool of compute-sanitizer, or auto; empty for none
	noSim     bool          // the simulator does not run the code of the GPU too
	simulates bool          // the command also takes the simulator
	times     bool          // the command needs a GPU, for times
	sim       simOptions
}

// timeoutFlag is --timeout: one limit for all jobs, in place of the defaults.
type timeoutFlag struct{ limit, launch *time.Duration }

// addTimeout adds --timeout with its defaults.
func addTimeout(f *pflag.FlagSet, limit, launch *time.Duration) {
	*limit, *launch = defaultLimit, defaultLaunchLimit
	f.Var(timeoutFlag{limit, launch}, "timeout", "limit of a launch (20s on a GPU) or timing (1m)")
}

func (t timeoutFlag) Set(text string) error {
	d, err := time.ParseDuration(text)
	*t.limit, *t.launch = d, d
	return err
}

func (t timeoutFlag) Type() string { return "duration" }

// String returns nothing before the flag is given, so that the help prints no default: there are two.
func (t timeoutFlag) String() string {
	if *t.limit != *t.launch {
		return ""
	}
	return t.limit.String()
}

// noSimFlag adds the flag of commands whose gate includes the simulator on a GPU.
func (o *deviceOptions) noSimFlag(f *pflag.FlagSet) {
	f.BoolVar(&o.noSim, strings.TrimPrefix(run.NoSimFlag, "--"), false, "GPU: no check on the simulator, no promotion")
}

// flags adds the flags of a command that runs on any device.
func (o *deviceOptions) flags(f *pflag.FlagSet) {
	o.simulates = true
	f.StringVar(&o.name, "device", autoDevice, "cuda, cuda:N, sim; auto: the GPU, else sim")
	addTimeout(f, &o.limit, &o.launch)
	o.sim.flags(f, "simulator: ")
}

// gpuFlags adds the flags of a command that needs a GPU.
func (o *deviceOptions) gpuFlags(f *pflag.FlagSet) {
	o.times = true
	f.StringVar(&o.name, "device", cudaDevice, "cuda or cuda:N")
	addTimeout(f, &o.limit, &o.launch)
	o.noSimFlag(f)
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
	tool := o.sanitizer
	if tool == sanitizerAuto {
		tool = ""
	}
	child, err := a.child(name, o.limit)
	if err != nil {
		return lab.Device{}, err
	}
	child.LaunchLimit = o.launch
	d, err := isolate.Start(ctx, child)
	switch {
	case err == nil:
		return a.besideSimulator(lab.GPU(d.Facts(), opener(child, tool)), child, o), d.Close()
	case o.name == autoDevice && errors.Is(err, device.ErrNoDevice) && tool == "":
		if !a.json {
			why, _, _ := strings.Cut(err.Error(), " (") // `attune doctor` shows the details too
			fmt.Fprintf(a.stderr, "attune: %s; the kernels run on the simulator\n", why)
		}
		return a.simulator(o), nil
	case o.simulates && errors.Is(err, device.ErrNoDevice) && tool == "":
		err = fmt.Errorf("%w; --device sim runs the kernels without a GPU", err)
	case o.times && errors.Is(err, device.ErrNoDevice):
		err = fmt.Errorf("%w; times need a GPU; attune run --device sim checks the kernels without one", err)
	}
	return lab.Device{}, err
}

// besideSimulator is a GPU whose code the simulator runs too: with all checkers, whatever the flags of
// the simulator say, and without what kernels print, because the GPU prints it.
func (a *app) besideSimulator(gpu lab.Device, child isolate.Options, o deviceOptions) lab.Device {
	if o.noSim {
		return gpu.WithoutSimulator()
	}
	var sanitizers []lab.Opener
	if o.sanitizer == sanitizerAuto {
		for _, tool := range isolate.SanitizerTools {
			sanitizers = append(sanitizers, opener(child, tool))
		}
	}
	asked := o.sim
	o.sim = defaultSim
	o.sim.strict, o.sim.memory, o.sim.addressSeed = asked.strict, max(asked.memory, defaultSim.memory), oracle.RandomSeed()|1 // 0 is the fixed place, which a kernel could know
	options := o.sim.options()
	options.Limit, options.Least = o.limit, max(besideSchedules, asked.scheduleCount())
	return gpu.Beside(simulatorOf(options, o.sim.tensor), sanitizers...)
}

// simulator is the simulator with the selected settings.
func (a *app) simulator(o deviceOptions) lab.Device {
	if o.sanitizer == sanitizerAuto && !a.json {
		fmt.Fprintln(a.stderr, "attune: --sanitizer auto has nothing to run here; the simulator has its checkers")
	}
	o.sim.limitHeap()
	options := o.sim.options()
	options.Limit, options.Printf = o.limit, func(text string) { fmt.Fprint(a.kernels, text) }
	return simulatorOf(options, o.sim.tensor)
}

func simulatorOf(options simdevice.Options, tensor string) lab.Device {
	open := func(context.Context) (device.Device, error) { return simdevice.Open(options), nil }
	settings := run.Simulation{Schedules: max(options.Schedules, 1), Automatic: options.Schedules == 0, Checks: options.Checks, Tensor: tensor, Strict: options.Strict, AddressSeed: options.AddressSeed}
	if options.Memory != mem.DefaultLimit {
		settings.MemoryMiB = options.Memory >> 20
	}
	return lab.Simulator(simdevice.Open(options).Facts(), open, settings)
}

// opener opens a GPU in a child process, under a tool of compute-sanitizer if one is named.
func opener(child isolate.Options, sanitizer string) lab.Opener {
	return func(ctx context.Context) (device.Device, error) {
		if sanitizer != "" {
			return isolate.StartSanitized(ctx, child, sanitizer)
		}
		return isolate.Start(ctx, child)
	}
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
