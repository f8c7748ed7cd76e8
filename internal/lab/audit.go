package lab

import (
	"context"
	"slices"

	"attune/internal/audit"
	"attune/internal/device"
	"attune/internal/gate"
	"attune/internal/sim/finding"
	"attune/internal/spec"
	"attune/internal/toolchain"
)

// Audit reads the PTX of an image for what could remember a launch or tell launches apart.
func Audit(image *toolchain.Image) []audit.Finding {
	return audit.PTX(image.PTX, image.Record.Kernel, outputParameters(image.Record.Launch)...)
}

// auditImage audits an image. It returns all findings, and the reasons against the image: the
// findings that the variant is not allowed to have.
func auditImage(v spec.Variant, image *toolchain.Image) (all []audit.Finding, reasons []string) {
	all = Audit(image)
	for _, f := range audit.Denied(all, v.Allowed()) {
		reasons = append(reasons, f.Reason())
	}
	return all, reasons
}

// unallowed removes the findings of a device about memory that the variant is allowed to have. A
// kernel that skips work on the same inputs is found all the same.
func unallowed(v spec.Variant, findings []device.Finding) []device.Finding {
	if !slices.Contains(v.Allowed(), audit.ModuleMemory) {
		return findings
	}
	return slices.DeleteFunc(findings, func(f device.Finding) bool { return f.Kind == string(finding.KeptMemory) })
}

// checkAudit returns a WrongError for an image with a finding that kernel.toml does not allow.
func checkAudit(v spec.Variant, image *toolchain.Image) error {
	if _, reasons := auditImage(v, image); len(reasons) > 0 {
		return &WrongError{v.String(), reasons[0]}
	}
	return nil
}

// buildAudited builds variants as buildAll does and refuses those that fail the audit.
func (l *Lab) buildAudited(ctx context.Context, arch string, variants ...spec.Variant) (map[string]*toolchain.Image, error) {
	images, err := l.buildAll(ctx, arch, variants...)
	if err != nil {
		return nil, err
	}
	for _, v := range variants {
		if err := checkAudit(v, images[v.String()]); err != nil {
			return nil, err
		}
	}
	return images, nil
}

// audit fails the correctness gate of a variant that has a finding which kernel.toml does not
// allow, and reports whether it has none. It needs no device, and a variant that fails is not
// launched.
func (a *attempt) audit() bool {
	all, reasons := auditImage(a.variant, a.image)
	a.result.Audit = all
	if len(reasons) > 0 {
		a.gates.Correctness = gate.Correctness(reasons)
	}
	return len(reasons) == 0
}
