package cases

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strconv"

	"attune/internal/device"
)

var errNotBuffer = errors.New("the argument is not a buffer")

// Job returns the case as a job for any device. The kernel may change every buffer. Uninitialised
// buffers are filled with the byte fill.
func (c *Case) Job(fill byte) (device.Job, error) {
	if c.launch != nil {
		return c.launch.job(), nil
	}
	image, err := c.text()
	if err != nil {
		return device.Job{}, fmt.Errorf("%s: %w", c.Name, err)
	}
	job := device.Job{Image: image, Entry: c.Entry, Grid: c.Grid, Block: c.Block, DynamicSharedBytes: c.Shared}
	if c.Cluster != (extents{1, 1, 1}) { // GPUs before sm_90 accept no cluster attribute, not even of one block
		job.Cluster = c.Cluster
	}
	for i, a := range c.Args {
		arg, err := a.jobArg(fill)
		if err != nil {
			return device.Job{}, fmt.Errorf("%s: argument %d: %w", c.Name, i, err)
		}
		job.Args = append(job.Args, arg)
	}
	return job, nil
}

// maxBuffer bounds a buffer of a case on a GPU, in bytes.
const maxBuffer = 2 << 30

// jobArg returns the argument of a job.
func (a *Argument) jobArg(fill byte) (device.Arg, error) {
	switch {
	case a.Hex != nil:
		data, err := parseHex(*a.Hex)
		return device.Arg{InOut: data}, err
	case a.Bytes != nil && (*a.Bytes < 0 || *a.Bytes > maxBuffer):
		return device.Arg{}, fmt.Errorf("a buffer of %d bytes; the size must be from 0 to %d", *a.Bytes, maxBuffer)
	case a.Bytes != nil:
		return device.Arg{InOut: bytes.Repeat([]byte{fill}, *a.Bytes)}, nil
	case a.Scratch != nil:
		return device.Arg{Scratch: *a.Scratch, Zero: a.Zero == zeroLaunch}, nil
	case a.TensorMap != nil:
		return device.Arg{TensorMap: a.TensorMap}, nil
	}
	return device.Arg{Scalar: a.scalar()}, nil
}

// isBuffer reports whether the argument is the address of a buffer.
func (a *Argument) isBuffer() bool { return a.Hex != nil || a.Bytes != nil || a.Scratch != nil }

// scalar returns the little-endian bytes of a scalar argument.
func (a *Argument) scalar() []byte {
	switch {
	case a.U64 != nil:
		return binary.LittleEndian.AppendUint64(nil, *a.U64)
	case a.F32 != nil:
		return binary.LittleEndian.AppendUint32(nil, math.Float32bits(*a.F32))
	}
	return binary.LittleEndian.AppendUint32(nil, *a.U32)
}

// Mismatches compares the outputs of the case's job with the expected bytes.
func (c *Case) Mismatches(outputs [][]byte) ([]string, error) {
	list, err := c.mismatches(func(index int, data []byte) error {
		buffer, err := c.outputBuffer(outputs, index)
		if err != nil {
			return err
		}
		if len(data) > len(buffer) {
			return fmt.Errorf("the case expects %d bytes; the buffer has %d", len(data), len(buffer))
		}
		copy(data, buffer)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", c.Name, err)
	}
	return list, nil
}

// Expected returns the outputs that the case compares, by argument index. Each is cut to the length
// in the case, or complete if the case has no bytes for it yet.
func (c *Case) Expected(outputs [][]byte) (map[string][]byte, error) {
	parts := map[string][]byte{}
	for name, expected := range c.Expect.Args {
		index, err := strconv.Atoi(name)
		var buffer []byte
		if err == nil {
			buffer, err = c.outputBuffer(outputs, index)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: expect.args: argument %s: %w", c.Name, name, err)
		}
		if n := len(expected.Hex) / 2; n > 0 {
			buffer = buffer[:min(n, len(buffer))]
		}
		parts[name] = buffer
	}
	return parts, nil
}

// outputBuffer returns the output for the buffer of an argument.
func (c *Case) outputBuffer(outputs [][]byte, index int) ([]byte, error) {
	n := 0
	for i, a := range c.Args {
		if a.Hex == nil && a.Bytes == nil {
			continue
		}
		if i == index && n < len(outputs) {
			return outputs[n], nil
		}
		n++
	}
	return nil, errNotBuffer
}
