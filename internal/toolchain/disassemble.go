package toolchain

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// Disassembler is the path of the nvdisasm beside a compiler, or in PATH.
func Disassembler(c *Compiler) (string, error) {
	beside := filepath.Join(filepath.Dir(c.NVCC), "nvdisasm")
	if _, err := os.Stat(beside); err == nil {
		return beside, nil
	}
	program, err := exec.LookPath("nvdisasm")
	if err != nil {
		return "", errors.New("there is no nvdisasm beside nvcc or in PATH; `attune toolchain install` installs one")
	}
	return program, nil
}

// SourceLines is the option of Disassemble that writes the source lines before each instruction, from
// the innermost inlined function outwards.
const SourceLines = "-gi"

// Disassemble returns the machine code of a cubin as SASS text. A damaged disassembler is a
// FaultError.
func Disassemble(ctx context.Context, c *Compiler, cubin []byte, options ...string) (string, error) {
	program, err := Disassembler(c)
	if err != nil {
		return "", err
	}
	file, err := os.CreateTemp("", "attune-*.cubin")
	if err != nil {
		return "", err
	}
	defer os.Remove(file.Name())
	_, err = file.Write(cubin)
	if err = errors.Join(err, file.Close()); err != nil {
		return "", err
	}
	out, err := exec.CommandContext(ctx, program, append([]string{"-c", file.Name()}, options...)...).CombinedOutput()
	if err != nil {
		if damaged, _ := c.damaged(ctx, true); len(damaged) > 0 {
			return "", damageFault("disassemble the machine code", damaged)
		}
		return "", fmt.Errorf("nvdisasm: %w: %s", err, bytes.TrimSpace(out))
	}
	return string(out), nil
}
