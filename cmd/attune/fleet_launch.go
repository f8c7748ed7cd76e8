package main

import (
	"io"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"attune/internal/launch"
)

func (a *app) fleetLaunchCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "launch",
		Short: "print a file that starts workers on Slurm or Kubernetes",
		Long: `Launch prints a file with which a cluster starts workers, one on each GPU. They
end when they are idle. Nothing is submitted.`,
		Example: "  attune fleet launch slurm --count 8 --creds keys/gpu-%a.toml > workers.sh",
		Args:    noSuchCommand,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(a.launchSlurmCommand(), a.launchKubernetesCommand())
	return cmd
}

// launchFlags are those of both schedulers.
func launchFlags(f *pflag.FlagSet, w *launch.Workers) {
	f.IntVar(&w.Count, "count", 1, "workers, each with a GPU of its own")
	f.StringVar(&w.Creds, "creds", "", "`path` of a worker's key; %a is its number, from 0")
	f.StringVar(&w.Class, "class", "", "a worker on a device of another `class` ends at once")
	f.StringVar(&w.GPU, "gpu", "", "`type` of the GPU as the scheduler names it")
	f.DurationVar(&w.Idle, "idle", 10*time.Minute, "a worker ends after so long without a job")
	f.DurationVar(&w.Time, "time", 4*time.Hour, "the scheduler ends a worker after so long")
	f.IntVar(&w.CPUs, "cpus", 8, "processors of a worker, which compiles variants")
	f.IntVar(&w.Memory, "memory", 32, "memory of a worker in GiB")
	f.StringVar(&w.Program, "program", "attune", "`path` of attune on the cluster")
}

// printLaunch prints a file; what is wrong with the flags is a usage error.
func (a *app) printLaunch(write func(io.Writer) error) error {
	if err := write(a.stdout); err != nil {
		return usageError{err}
	}
	return nil
}

func (a *app) launchSlurmCommand() *cobra.Command {
	var w launch.Workers
	cmd := &cobra.Command{
		Use:   "slurm",
		Short: "print a batch script: an array with a worker on each GPU",
		Long: `Slurm prints a script for sbatch. Each worker has a GPU and shares its node with
the user's own jobs only. A minute before the time limit it gives its job back.`,
		Example: `  attune fleet launch slurm --creds gpu7.toml > worker.sh
  attune fleet launch slurm --count 4 --partition gpu --creds keys/gpu-%a.toml`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return a.printLaunch(w.WriteSlurm) },
	}
	launchFlags(cmd.Flags(), &w)
	cmd.Flags().StringVar(&w.Partition, "partition", "", "`name` of the partition (default: the cluster's)")
	return cmd
}

func (a *app) launchKubernetesCommand() *cobra.Command {
	var w launch.Workers
	cmd := &cobra.Command{
		Use:   "k8s",
		Short: "print a job of Kubernetes with a worker on each GPU",
		Long: `K8s prints a job of Kubernetes 1.29 or newer. Its pods have no token of the
cluster, no root, and a root file system that is read only. The keys are in a
secret; the first lines of the file say how to create it.`,
		Example: "  attune fleet launch k8s --count 4 --image registry.example/attune:0.2.0 \\\n    --creds keys/gpu-%a.toml > workers.yaml",
		Args:    cobra.NoArgs,
		RunE:    func(*cobra.Command, []string) error { return a.printLaunch(w.WriteKubernetes) },
	}
	launchFlags(cmd.Flags(), &w)
	cmd.Flags().StringVar(&w.Image, "image", "", "`image` with attune and nvcc")
	cmd.Flags().StringVar(&w.Secret, "secret", "attune-keys", "`name` of the secret with the keys")
	return cmd
}
