package lab

import (
	"fmt"
	"slices"
	"strings"

	"attune/internal/ptx"
	"attune/internal/tensormap"
	"attune/internal/toolchain"
)

// argument is what a launch passes for one parameter of a kernel.
type argument struct {
	name  string
	is    string // its C++ type, in words
	bytes int
	float bool
}

func (a argument) String() string { return fmt.Sprintf("%s (%s, %d bytes)", a.name, a.is, a.bytes) }

// arguments lists what newJob passes, in the same order.
func arguments(launch toolchain.Launch) []argument {
	var all []argument
	add := func(is string, bytes int, names ...string) {
		for _, name := range names {
			all = append(all, argument{name, is, bytes, is == "float"})
		}
	}
	const pointer, integer = "pointer", "int"
	add(pointer, 8, "q", "k", "v", "o")
	if launch.LSE != "" {
		add(pointer, 8, "lse")
	}
	add(pointer, 8, "descale_q", "descale_k", "descale_v")
	add(integer, 4, "heads", "group", "queries", "keys", "causal")
	add("float", 4, "softmax_scale")
	for _, m := range launch.TensorMaps {
		add("CUtensorMap", tensormap.Bytes, "tensor map of "+[]string{"q", "k", "v", "o"}[m.Argument])
	}
	return all
}

// checkParameters compares the parameters of a kernel with the arguments of a launch. A mismatch is
// a mistake in the kernel's folder and no result of an experiment. The driver would read arguments
// that do not exist.
func checkParameters(image *toolchain.Image) error {
	module, err := ptx.Parse(image.PTX)
	if err != nil {
		return nil // the device reports PTX that it cannot read
	}
	name, passed := image.Record.Kernel, arguments(image.Record.Launch)
	i := slices.IndexFunc(module.Functions, func(f *ptx.Function) bool { return f.Entry && f.Name == name })
	if i < 0 {
		return RequestError(fmt.Sprintf("kernel %s (variant %s): the source has no entry function %s; "+
			"declare it as extern \"C\" __global__ with the name of the kernel; nothing was recorded for this variant",
			name, image.Record.Variant, name))
	}
	mismatch := parameterMismatch(module.Functions[i].Params, passed)
	if mismatch == "" {
		return nil
	}
	var names []string
	for _, a := range passed {
		names = append(names, a.name)
	}
	return RequestError(fmt.Sprintf("kernel %s (variant %s): %s; declare its parameters in this order: %s; "+
		"lse and tensor maps are passed as ATTUNE_OUTPUTS and ATTUNE_TENSOR_MAPS declare them; nothing was recorded for this variant",
		name, image.Record.Variant, mismatch, strings.Join(names, ", ")))
}

// parameterMismatch describes the first parameter that differs from its argument, or is empty.
func parameterMismatch(params []*ptx.Variable, passed []argument) string {
	for i, p := range params {
		if i >= len(passed) {
			return fmt.Sprintf("parameter %d (%s, %d bytes) gets no argument; the launch passes %d", i, p.Name, p.Size(), len(passed))
		}
		a := passed[i]
		if p.Size() != a.bytes {
			return fmt.Sprintf("parameter %d (%s) has %d bytes; the launch passes %s", i, p.Name, p.Size(), a)
		}
		if isFloat := p.Type == ptx.F32; isFloat != a.float {
			return fmt.Sprintf("parameter %d (%s) is %s; the launch passes %s", i, p.Name, map[bool]string{true: "a float", false: "no float"}[isFloat], a)
		}
	}
	if len(params) < len(passed) {
		return fmt.Sprintf("it has %d parameters; the launch passes %d, and %s has no parameter", len(params), len(passed), passed[len(params)])
	}
	return ""
}
