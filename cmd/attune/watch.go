package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"attune/internal/document"
	"attune/internal/lab"
	"attune/internal/run"
)

func (a *app) watchCommand() *cobra.Command {
	var o runOptions
	cmd := &cobra.Command{
		Use:   "watch [VARIANT]",
		Short: "check a variant again whenever a file of the kernel is saved",
		Long: `Watch builds a variant or a selection, takes it through the gates on the quick
set of shapes, and does so again whenever a file of the kernel's folder is
saved. A check that is still running is then abandoned. The screen has the last
result: the outcome, the gates and the first failures. Nothing is recorded.

Without a GPU it checks on the simulator. Without a compiler it can check only
shipped variants whose sources are unchanged, and says so. Ctrl-C ends it.`,
		Example: `  attune watch stage2 --device sim
  attune watch stage2+TILE_N=32 --shapes 1x2x33x64:causal`,
		Args: a.oneVariant("VARIANT"),
		RunE: func(cmd *cobra.Command, args []string) error {
			variant, err := a.variantArgument(args)
			if err != nil {
				return err
			}
			return a.watch(cmd.Context(), o, []string{variant})
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.shapes, "shapes", "", "names or shapes, with commas (default: the quick set)")
	f.StringVar(&o.seeds, "seeds", "", "seeds of the inputs, with commas (default: the first of the spec)")
	f.StringVar(&o.arch, "arch", "", "build for this architecture (default: the device's, or the newest of the stage)")
	o.device.flags(f)
	o.device.noSimFlag(f)
	o.reference.flags(f)
	o.quick, o.rounds, o.processes = true, 20, 1
	return cmd
}

// pollInterval is the time between two looks at the kernel's folder.
const pollInterval = 200 * time.Millisecond

func (a *app) watch(ctx context.Context, o runOptions, args []string) error {
	folder := a.kernelPath()
	switch {
	case a.json:
		return usageError{errors.New("watch prints a screen; `attune run --json` prints a document")}
	case folder == "":
		return usageError{errors.New("watch needs a folder with a kernel.toml: name it with --kernel, or start in the root of the repository")}
	}
	kernel, _, err := a.kernel()
	if err != nil {
		return err
	}
	if _, err := o.request(kernel, args, o.device.name == simDevice); err != nil {
		return err
	}
	device, err := a.findDevice(ctx, o.device)
	if err != nil {
		return err
	}
	for ctx.Err() == nil {
		before, err := readStamps(folder)
		if err != nil {
			return err
		}
		check, abandon := context.WithCancel(ctx)
		changed := make(chan struct{})
		go func() {
			defer close(changed)
			waitForChange(ctx, folder, before)
			abandon()
		}()
		screen := &strings.Builder{}
		started := time.Now()
		a.checkWatched(check, o, args, device, screen)
		if check.Err() == nil {
			fmt.Fprintln(screen)
			a.screen().Paragraph(screen, "", fmt.Sprintf("checked at %s in %.1f s; waiting for a change in %s; Ctrl-C ends",
				time.Now().Format(time.TimeOnly), time.Since(started).Seconds(), folder), 2)
			a.showScreen(screen.String())
		}
		<-changed
	}
	return gateError{exitInterrupted} // the only end, and no failure that needs a message
}

// stamp identifies a version of a file.
type stamp struct {
	size int64
	time time.Time
}

// readStamps returns the versions of the files under a folder. Hidden files and backups are the
// editor's, so they are not watched.
func readStamps(folder string) (map[string]stamp, error) {
	stamps := map[string]stamp{}
	err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		name := filepath.Base(path)
		switch {
		case errors.Is(err, fs.ErrNotExist) && path != folder: // an editor replaces files
			return nil
		case err != nil:
			return err
		case path != folder && entry.IsDir() && strings.HasPrefix(name, "."):
			return fs.SkipDir
		case entry.IsDir() || strings.HasPrefix(name, ".") || strings.HasSuffix(name, "~"):
			return nil
		}
		info, err := os.Stat(path)
		if err == nil {
			stamps[path] = stamp{info.Size(), info.ModTime()}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("watch %s: %w", folder, err)
	}
	return stamps, nil
}

// waitForChange returns when a file under a folder was saved, added or removed, or ctx ends.
func waitForChange(ctx context.Context, folder string, before map[string]stamp) {
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		now, err := readStamps(folder)
		if err != nil { // the folder itself may be replaced
			continue
		}
		if len(now) != len(before) {
			return
		}
		for path, stamp := range now {
			if before[path] != stamp {
				return
			}
		}
	}
}

// checkWatched loads the kernel, takes the variant through the gates and writes the result for the
// screen. Errors are results too: the next save may mend them.
func (a *app) checkWatched(ctx context.Context, o runOptions, args []string, device lab.Device, screen io.Writer) {
	fail := func(err error) {
		fmt.Fprintf(screen, "%s  not checked\n\n", args[0])
		for line := range strings.SplitSeq(err.Error(), "\n") {
			a.screen().Paragraph(screen, "", line, 2)
		}
	}
	kernel, folder, err := a.kernel()
	if err != nil {
		fail(err)
		return
	}
	request, err := o.request(kernel, args, device.Simulated())
	if err != nil {
		fail(err)
		return
	}
	w, err := a.newWorkplace(ctx, kernel, folder)
	if err != nil {
		fail(err)
		return
	}
	defer w.close()
	w.Device = device
	a.prepareReference(ctx, w, &o.reference)
	p := a.newRunPrinter(w, false, request)
	var result *run.Run
	err = w.Run(ctx, request, func(r *run.Run) { result = r }) // the last one is that of the selection
	p.stop()
	if err != nil {
		fail(err)
	} else {
		_ = document.Gates(result, a.screen(), a.sources()).Terminal(screen, a.screen())
	}
	if w.compiler == nil {
		fmt.Fprintln(screen)
		a.screen().Paragraph(screen, "", "no compiler: a changed source cannot be built; `attune toolchain install` installs one", 2)
	}
}

// showScreen replaces what the terminal shows, as far as it has lines. Without a terminal it prints
// the text.
func (a *app) showScreen(text string) {
	height := a.screen().Height
	if height == 0 {
		fmt.Fprint(a.stdout, text)
		return
	}
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	if height > 3 && len(lines) >= height {
		last := lines[len(lines)-1]
		lines = append(lines[:height-3], "...", last) // one line stays free for the status line
	}
	const home, clear = "\x1b[H", "\x1b[2J"
	fmt.Fprint(a.raw, clear+home)
	fmt.Fprint(a.stdout, strings.Join(lines, "\n")+"\n")
}
