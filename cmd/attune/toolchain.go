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
		Short:   "install or verify NVIDIA's compiler, or show which one is used",
		Example: "  attune toolchain install\n  attune toolchain status\n  attune toolchain verify",
		Args:    noSuchCommand,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.toolchainInstallCommand(), a.toolchainStatusCommand(), a.toolchainVerifyCommand())
	return cmd
}

func (a *app) toolchainInstallCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "install",
		Short: "install NVIDIA's pinned compiler into the cache",
		Long: `Install downloads NVIDIA's CUDA ` + toolchain.InstalledVersion + ` compiler as Python wheels with the
user's pip, checks their hashes and unpacks them into attune's cache (about
280 MB). It needs no GPU. Deleting the cache removes it.

An installed compiler is verified: every file is compared with the hash of its
wheel, and a damaged compiler is installed again. What a killed installation
left behind is removed.`,
		Example: "  attune toolchain install",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cacheDir, err := toolchain.CacheDir()
			if err != nil {
				return err
			}
			status := a.status()
			compiler, err := toolchain.Install(cmd.Context(), cacheDir, toolchain.Observer{
				Progress: func(done, total int64) {
					status.Set("installing NVIDIA's compiler: %d of %d MB", done>>20, total>>20)
				},
				Note: a.note,
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

func (a *app) toolchainVerifyCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "verify",
		Short: "compare the installed compiler with the hashes of its wheels",
		Long: `Verify reads every file of the compiler that "attune toolchain install" has
installed and compares it with the hash of its wheel, and the lists of these
hashes with digests in this program. It prints the damaged files and ends with
21 if there are any; "attune toolchain install" repairs them. Attune has no
hashes of other compilers, such as that of CUDA_HOME.`,
		Example: "  attune toolchain verify",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cacheDir, err := toolchain.CacheDir()
			if err != nil {
				return err
			}
			v, err := toolchain.Verify(cmd.Context(), cacheDir)
			if err != nil {
				return err
			}
			if err := a.printVerification(v); err != nil || len(v.Damaged) == 0 {
				return err
			}
			return &toolchain.FaultError{
				Task: "verify the compiler", Symptom: toolchain.Summary(v.Damaged), Remedy: "run `attune toolchain install` to repair it",
			}
		},
	}
}

func (a *app) printVerification(v toolchain.Verification) error {
	if a.json {
		return a.printJSON(struct {
			SchemaVersion int `json:"schema_version"`
			toolchain.Verification
		}{1, v})
	}
	_, err := fmt.Fprintf(a.stdout, "nvcc %s in %s: %d files, %d damaged\n", toolchain.InstalledVersion, v.Folder, v.Files, len(v.Damaged))
	for _, d := range v.Damaged {
		_, more := fmt.Fprintf(a.stdout, "  %s\n", d)
		err = errors.Join(err, more)
	}
	return err
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
