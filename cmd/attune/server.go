package main

import (
	"strconv"

	"github.com/spf13/cobra"

	"attune/internal/device"
	"attune/internal/device/cuda"
	"attune/internal/device/isolate"
)

// serverName is the hidden command with which the program starts itself as a device server.
const serverName = "device-server"

// serverCommand serves a GPU to the parent process. A kernel that crashes ends only this process.
func (a *app) serverCommand() *cobra.Command {
	return &cobra.Command{
		Use:    serverName + " INDEX",
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
