//go:build !linux && !darwin

package sdpa

import "fmt"

// GPU returns ErrNoGPU: this system has no way to NVIDIA's driver.
func GPU(int) (*Device, error) {
	return nil, fmt.Errorf("sdpa: %w: GPUs are supported on Linux", ErrNoGPU)
}
