package device_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"attune/internal/device"
)

func TestClassify(t *testing.T) {
	fault := &device.Fault{Code: "CUDA_ERROR_ILLEGAL_ADDRESS", Text: "an illegal memory access", Operation: "run the kernel"}
	for _, c := range []struct {
		err         error
		want        device.Failure
		name        string
		losesDevice bool
	}{
		{nil, device.NoFailure, "no failure", false},
		{fault, device.KernelFault, "kernel fault", true},
		{&device.Timeout{Limit: time.Second}, device.KernelTimeout, "kernel timeout", true},
		{&device.Crash{How: "signal: killed"}, device.KernelCrash, "kernel crash", true},
		{&device.Unsupported{Why: "wgmma is not simulated"}, device.KernelUnsupported, "kernel unsupported", false},
		{errors.New("job k: grid x is 0"), device.OtherFailure, "other failure", false},
		{device.ErrNoClock, device.OtherFailure, "other failure", false},
		{context.Canceled, device.OtherFailure, "other failure", false},
		{context.DeadlineExceeded, device.OtherFailure, "other failure", false},
		{fmt.Errorf("%w: %w", device.ErrNoDevice, fault), device.OtherFailure, "other failure", false},
	} {
		errs := []error{c.err}
		if c.err != nil {
			errs = append(errs, fmt.Errorf("run stage2: %w", c.err), errors.Join(errors.New("close"), c.err))
		}
		for _, err := range errs {
			got := device.Classify(err)
			if got != c.want || got.String() != c.name || got.LosesDevice() != c.losesDevice {
				t.Errorf("Classify(%v) = %v, loses the device: %v; want %v, %v", err, got, got.LosesDevice(), c.name, c.losesDevice)
			}
		}
	}
}

// Messages have the names of arguments that have one.
func TestLabels(t *testing.T) {
	got := []string{device.Arg{Input: []byte{1}, Name: "x"}.Variable(0).String(), device.Arg{Output: 4}.Variable(2).String()}
	if want := []string{`argument 0 "x"`, "argument 2"}; !slices.Equal(got, want) {
		t.Errorf("%q; want %q", got, want)
	}
}
