package document

import (
	"strings"

	"attune/internal/run"
)

// Commands has what the commands of a report need beside the record, so that they work as printed.
// The zero value adds nothing.
type Commands struct {
	Ledger string // folder that the records were read from, as a word of a shell; empty for the default
	// KernelFolder is the folder of a kernel, as a word of a shell, or empty if commands find the
	// kernel without --kernel. It reports false if no folder is known.
	KernelFolder func(kernel string) (folder string, known bool)
}

// kernelFlag is the flag that names a kernel's folder; empty if it is not needed or not known.
func (c Commands) kernelFlag(kernel string) string {
	if c.KernelFolder == nil {
		return ""
	}
	if folder, _ := c.KernelFolder(kernel); folder != "" {
		return " --kernel " + folder
	}
	return ""
}

// LedgerFlag is the flag of a command that reads a record; empty for the default ledger.
func (c Commands) LedgerFlag() string { return c.ledgerFlag("--ledger") }

// ledgerFlag is a flag that names the ledger; empty for the default.
func (c Commands) ledgerFlag(flag string) string {
	if c.Ledger == "" {
		return ""
	}
	return " " + flag + " " + c.Ledger
}

// reproduce repeats a run. The new run is recorded in the default ledger, so that the one of the
// record stays as it is.
func (c Commands) reproduce(id, kernel string) Code {
	return Code{Text: Span{Text: "attune reproduce " + run.ShellWord(id) + c.ledgerFlag("--from") + c.kernelFlag(kernel)}}
}

// bench repeats a bench. Older records have no --kernel.
func (c Commands) bench(command Span, kernel string) Code {
	if flag := c.kernelFlag(kernel); flag != "" && !hasKernel(command.Text) {
		command = Span{Text: command.Text + flag}
	}
	return Code{Text: command}
}

func hasKernel(command string) bool {
	return strings.Contains(command, " --kernel ") || strings.Contains(command, " --kernel=")
}

// unknownKernel asks for the folder that the commands need, if it is not known.
func (c Commands) unknownKernel(kernel Span) []Block {
	if c.KernelFolder == nil {
		return nil
	}
	if _, known := c.KernelFolder(kernel.Text); known {
		return nil
	}
	return []Block{say("The folder of the kernel ", kernel, " is not known here: add `--kernel` with it.")}
}
