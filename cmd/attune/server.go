package main

import (
	"strconv"

	"github.com/spf13/cobra"

	"attune/internal/device"
	"attune/internal/device/cuda"
	"attune/internal/device/isolate"
)

// deviceCommand is how attune serves a machine to itself, in a process that may be lost. It is not for people.
func (a *app) deviceCommand() *cobra.Command {
	return &cobra.Command{
		Use:    serverVerb + " INDEX",
		Short:  "serve a GPU to the parent process",
		Hidden: true,
		Args:   cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			index, err := strconv.Atoi(args[0])
			if err != nil {
				return usageError{err}
			}
			return isolate.Serve(func() (device.Machine, error) { return cuda.Open(index) })
		},
	}
}
