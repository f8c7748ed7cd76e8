package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"attune/internal/toolchain"
)

func (a *app) toolchainCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "toolchain",
		Short:   "install NVIDIA's compiler, or show which one is used",
		Example: "  attune toolchain install\n  attune toolchain status",
		Args:    noSuchCommand,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.toolchainInstallCommand(), a.toolchainStatusCommand())
	return cmd
}

func (a *app) toolchainInstallCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "install",
		Short: "install NVIDIA's pinned compiler into the cache",
		Long: `Install downloads NVIDIA's CUDA ` + toolchain.InstalledVersion + ` compiler as Python wheels with the
user's pip, checks their hashes and unpacks them into attune's cache (about
280 MB). It needs no GPU. Deleting the cache removes it.`,
		Example: "  attune toolchain install",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cacheDir, err := toolchain.CacheDir()
			if err != nil {
				return err
			}
			status := a.status()
			compiler, err := toolchain.Install(cmd.Context(), cacheDir, func(done, total int64) {
				status.Set("installing NVIDIA's compiler: %d of %d MB", done>>20, total>>20)
			})
			status.Clear()
			if err != nil {
				return err
			}
			return a.printCompiler(compiler)
		},
	}
}

func (a *app) toolchainStatusCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "status",
		Short:   "show which compiler is used, and where it was found",
		Example: "  attune toolchain status",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cacheDir, err := toolchain.CacheDir()
			if err != nil {
				return err
			}
			compiler, err := toolchain.Find(cmd.Context(), cacheDir)
			if err != nil {
				return err
			}
			return a.printCompiler(compiler)
		},
	}
}

func (a *app) printCompiler(c *toolchain.Compiler) error {
	disassembler, err := toolchain.Disassembler(c)
	if err != nil {
		disassembler = ""
	}
	if a.json {
		return a.printJSON(map[string]any{
			"schema_version": 1, "version": c.Version, "origin": c.Origin, "nvcc": c.NVCC, "ptxas": c.PTXAS, "nvdisasm": disassembler,
		})
	}
	_, err = fmt.Fprintf(a.stdout, "nvcc %s from %s\n  nvcc      %s\n  ptxas     %s\n", c.Version, c.Origin, c.NVCC, c.PTXAS)
	if disassembler != "" {
		_, more := fmt.Fprintf(a.stdout, "  nvdisasm  %s\n", disassembler)
		err = errors.Join(err, more)
	}
	return err
}
