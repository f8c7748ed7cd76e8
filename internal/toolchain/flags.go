package toolchain

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// compilerFlags are the flags of a kernel by the program and the purpose that they are for.
type compilerFlags struct {
	nvcc    []string
	ptxas   []string // attune runs ptxas itself
	include []string // absolute folders
	tree    fs.FS    // has these folders, with itself as root; nil if they are on disk

	// names are the folders of include as the kernel names them, relative to its folder. An absolute
	// folder has none: its path is of this machine.
	names map[string]string
}

// ownFlags are the flags that attune sets, and the way to what they are used for.
var ownFlags = map[string]string{
	"arch": "name the architecture in archs", "gpu-architecture": "name the architecture in archs",
	"code": "name the architecture in archs", "gpu-code": "name the architecture in archs",
	"gencode": "name the architecture in archs", "generate-code": "name the architecture in archs",
	"o": "leave it out", "output-file": "leave it out", "odir": "leave it out",
	"ptx": "leave it out", "cubin": "leave it out", "fatbin": "leave it out", "c": "leave it out",
	"dc": "leave it out", "compile": "leave it out", "run": "leave it out", "keep": "leave it out", "dryrun": "leave it out",
}

// allowedFlags are the flags of nvcc that a kernel may have: those that change code and messages. Others
// run programs, or read and write files that no hash has.
var allowedFlags = []string{
	"I", "include-path", "D", "define-macro", "U", "undefine-macro", "std", "Xptxas", "ptxas-options", "maxrregcount",
	"O0", "O1", "O2", "O3", "O", "optimize", "dopt", "Ofc", "Ofast-compile", "G", "device-debug", "g", "debug", "lineinfo", "generate-line-info",
	"use_fast_math", "ftz", "prec-div", "prec-sqrt", "fmad", "extra-device-vectorization", "restrict", "default-stream",
	"expt-relaxed-constexpr", "expt-extended-lambda", "extended-lambda", "ftemplate-depth", "ftemplate-backtrace-limit",
	"rdc", "relocatable-device-code", "dlto", "m64", "machine", "w", "disable-warnings", "Werror", "Wreorder", "Wall",
	"Wno-deprecated-declarations", "Wno-deprecated-gpu-targets", "Wmissing-launch-bounds", "Wext-lambda-captures-this", "Wdefault-stream-launch",
	"diag-suppress", "diag-error", "diag-warn", "display-error-number", "no-display-error-number", "err-no", "dno-err",
	"res-usage", "resource-usage", "src-in-ptx", "source-in-ptx", "allow-unsupported-compiler", "split-compile", "t", "threads", "v", "verbose",
	"no-host-device-initializer-list", "no-host-device-move-forward", "nodlink", "brief-diagnostics", "brief-diag",
}

// hostFlag and assemblerFlag are what a kernel may pass to the host's preprocessor and to ptxas.
var (
	hostFlag      = regexp.MustCompile(`^-(?:W(?:no-|error=)?[a-z][a-z0-9+=-]+|Wall|Wextra|w|O[0-3]|pthread|fPIC|fopenmp|fpermissive|fno-strict-aliasing|std=\S+)$`)
	assemblerFlag = regexp.MustCompile(`^--?(?:v|verbose|w|O[0-4]?|opt-level|g|lineinfo|generate-line-info|device-debug|dlcm|dscm|def-load-cache|def-store-cache` +
		`|warn-[a-z-]+|suppress-[a-z-]+|disable-[a-z-]+|maxrregcount|minnctapersm|maxntid|fmad|register-usage-level|allow-expensive-optimizations` +
		`|Werror|sp-bounds-check|position-independent-code|split-compile|Ofc|Ofast-compile|uumn|no-fastreg|compile-only|c)(?:=[\w.,-]+)?$`)
)

// checkFlag refuses a flag that could run a program or name a file.
func checkFlag(text, name, value string) error {
	what, pattern := "", (*regexp.Regexp)(nil)
	switch name {
	case "Xcompiler", "compiler-options":
		what, pattern = "the host's compiler", hostFlag
	case "Xptxas", "ptxas-options":
		what, pattern = "ptxas", assemblerFlag
	default:
		if !slices.Contains(allowedFlags, name) {
			return fmt.Errorf("the compiler's flag %q is not supported: flags change code and messages, and name no files or programs; "+
				"-I, -D, -std, -O, -Xptxas, --use_fast_math and --expt-relaxed-constexpr are supported", text)
		}
		return nil
	}
	for _, part := range strings.Split(value, ",") {
		if !pattern.MatchString(part) {
			return fmt.Errorf("the flag %q for %s is not supported: it may run a program or name a file", part, what)
		}
	}
	return nil
}

// splitFlags sorts the flags of a kernel. Folders of -I are relative to dir, the kernel's folder on
// disk, which is empty for a kernel that has none.
func splitFlags(flags []string, dir string) (compilerFlags, error) {
	var split compilerFlags
	for i := 0; i < len(flags); i++ {
		text := flags[i]
		if !strings.HasPrefix(text, "-") || text == "-" {
			return split, fmt.Errorf("the compiler's flag %q does not begin with -; write a flag and its value as one string", text)
		}
		name, value, hasValue := flagName(text)
		if way, own := ownFlags[name]; own {
			return split, fmt.Errorf("the compiler's flag %q is set by attune; %s", text, way)
		}
		takesValue := slices.Contains([]string{"I", "include-path", "Xptxas", "ptxas-options", "maxrregcount", "std", "D", "define-macro", "U", "undefine-macro", "Xcompiler", "compiler-options"}, name)
		if takesValue && !hasValue {
			if i++; i == len(flags) {
				return split, fmt.Errorf("the compiler's flag %q needs a value", text)
			}
			value, text = flags[i], "-"+name+"="+flags[i]
		}
		if err := checkFlag(text, name, value); err != nil {
			return split, err
		}
		switch name {
		case "I", "include-path":
			folder, err := includeFolder(value, dir)
			if err != nil {
				return split, err
			}
			split.include = append(split.include, folder)
			if !filepath.IsAbs(value) {
				split.name(folder, value)
			}
		case "Xptxas", "ptxas-options":
			split.ptxas = append(split.ptxas, strings.Split(value, ",")...)
		case "maxrregcount":
			split.ptxas = append(split.ptxas, "-maxrregcount="+value)
		default:
			split.nvcc = append(split.nvcc, text)
		}
	}
	return split, nil
}

// name records the name of a folder of include. The first one counts.
func (f *compilerFlags) name(folder, name string) {
	if f.names == nil {
		f.names = map[string]string{}
	}
	if _, known := f.names[folder]; !known {
		f.names[folder] = filepath.ToSlash(filepath.Clean(name))
	}
}

// renamed returns the flags with names relative to dir, if dir and the names are relative to the same
// folder. A name that needs a path of this machine is removed, and so are all for an empty dir.
func (f compilerFlags) renamed(dir string) compilerFlags {
	names := f.names
	f.names = nil
	for folder, name := range names {
		if relative, err := filepath.Rel(dir, name); err == nil && dir != "" && !filepath.IsAbs(dir) {
			f.name(folder, relative)
		}
	}
	return f
}

// written returns the flags of a compilation in dir, where writeTo has written the headers of a tree.
func (f compilerFlags) written(dir string) compilerFlags {
	if f.tree == nil {
		return f
	}
	folders, names := f.include, f.names
	f.include, f.names, f.tree = nil, nil, nil
	for i, folder := range folders {
		local := fmt.Sprintf("%s%d", outsidePrefix, i)
		f.include = append(f.include, filepath.Join(dir, local))
		if name, known := names[folder]; known {
			f.name(f.include[i], name)
			f.name(local, name) // in messages, which have paths relative to dir
		}
	}
	return f
}

// portableName is the name of a header of a folder of -I that the kernel names by a relative path; it
// is empty for other files. The compiler may have resolved links in the file's path.
func (f compilerFlags) portableName(file string) string {
	for _, folder := range f.include {
		if name, known := f.names[folder]; known {
			if rest, inside := pathIn(folder, file); inside {
				return path.Join(name, rest)
			}
		}
	}
	return ""
}

// numberedName is the name of a header of any folder of -I: the number of the folder among the flags,
// as in the hash of the sources, and the path in it.
func (f compilerFlags) numberedName(file string) string {
	for i, folder := range f.include {
		if rest, inside := pathIn(folder, file); inside {
			return fmt.Sprintf("%s%d/%s", outsidePrefix, i, rest)
		}
	}
	return ""
}

// pathIn is the path of a file in a folder, with or without the folder's links.
func pathIn(folder, file string) (string, bool) {
	rest, inside := strings.CutPrefix(file, strings.TrimSuffix(folder, "/")+"/")
	if !inside {
		rest, inside = strings.CutPrefix(file, strings.TrimSuffix(resolved(folder), "/")+"/")
	}
	return rest, inside
}

// withNames replaces the folders of -I in an output of the compiler by their names.
func (f compilerFlags) withNames(output string) string {
	for folder, name := range f.names {
		at := regexp.MustCompile(`(?m)(^|[\s"'(])` + regexp.QuoteMeta(strings.TrimSuffix(folder, "/")) + "/")
		output = at.ReplaceAllString(output, "${1}"+strings.ReplaceAll(strings.TrimPrefix(name+"/", "./"), "$", "$$"))
	}
	return output
}

// resolved is a path without symbolic links, or the path itself.
func resolved(folder string) string {
	if real, err := filepath.EvalSymlinks(folder); err == nil {
		return real
	}
	return folder
}

// rejectedFlag is the line of nvcc or ptxas about a flag, or the value of one, which it quotes.
var rejectedFlag = regexp.MustCompile(`(?m)^(nvcc|ptxas) fatal *: (.*?'([^'\n]+)'.*)$`)

// flagError is the error of a compiler that rejects one of the target's own flags; nil if the output
// has no such line. nvcc may quote a part of the flag, or write it with another number of dashes.
func (t Target) flagError(output string) error {
	line := rejectedFlag.FindStringSubmatch(output)
	if line == nil {
		return nil
	}
	part := strings.TrimLeft(line[3], "-")
	at := slices.IndexFunc(t.Flags, func(flag string) bool { // the whole flag, or else a part of one
		return flag == line[3] || strings.HasSuffix(flag, "-"+part) || strings.HasSuffix(flag, "="+part)
	})
	if at < 0 {
		at = slices.IndexFunc(t.Flags, func(flag string) bool { return part != "" && strings.Contains(flag, part) })
	}
	if at < 0 {
		return nil
	}
	return &SourceError{t, fmt.Sprintf("%sthe flag %q: %s: %s", t.inFlags(), t.Flags[at], line[1], line[2])}
}

// inFlags begins a message about the target's own flags.
func (t Target) inFlags() string {
	if t.FlagsAt == "" {
		return ""
	}
	return t.FlagsAt + `: "flags": `
}

// flagName splits a flag such as -std=c++20 or -I../include.
func flagName(text string) (name, value string, hasValue bool) {
	long := strings.HasPrefix(text, "--")
	name, value, hasValue = strings.Cut(strings.TrimLeft(text, "-"), "=")
	if short := name[:min(len(name), 1)]; !long && slices.Contains([]string{"I", "D", "U"}, short) && len(name) > 1 {
		return short, strings.TrimLeft(text, "-")[1:], true
	}
	return name, value, hasValue
}

// includeFolder makes a folder of -I absolute: the compiler runs elsewhere.
func includeFolder(folder, dir string) (string, error) {
	if filepath.IsAbs(folder) {
		return filepath.Clean(folder), nil
	}
	if dir == "" {
		return "", fmt.Errorf("-I%s is relative to the kernel's folder, and this kernel is not in a folder on disk", folder)
	}
	return filepath.Abs(filepath.Join(dir, folder))
}

// options are nvcc's options for a target. A -std of the kernel replaces attune's.
func (t Target) options(own compilerFlags) []string {
	options := flags(t.Arch)
	if slices.ContainsFunc(own.nvcc, func(text string) bool { name, _, _ := flagName(text); return name == "std" }) {
		options = slices.DeleteFunc(options, func(text string) bool { return strings.HasPrefix(text, "-std=") })
	}
	options = append(append(options, t.defines()...), own.nvcc...)
	for _, folder := range own.include {
		options = append(options, "-I"+folder)
	}
	return options
}

// noEntry is the error of code without the entry function of a target. It names those that exist.
func (t Target) noEntry(entries []string) error {
	name := t.EntryName()
	switch {
	case len(entries) == 0:
		return errors.New("it has no entry function: declare one with __global__")
	case slices.ContainsFunc(entries, func(e string) bool { return strings.HasPrefix(e, "_Z") && strings.Contains(e, name) }):
		return fmt.Errorf(`it has no entry function %q, but %s; declare it extern "C", so that it keeps its name`, name, strings.Join(entries, ", "))
	}
	return fmt.Errorf("it has no entry function %q, but %s; name one by entry", name, strings.Join(entries, ", "))
}
