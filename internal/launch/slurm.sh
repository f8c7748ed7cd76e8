#!/bin/bash
# {{.Count}} {{if eq .Count 1}}worker{{else}}workers{{end}} of a fleet of attune, one on each GPU, started by
#   sbatch FILE
# A worker ends when it had no job for {{.Idle}}. Others of the user may share its node, so that
# the node's GPUs are in use, and nobody else.
#SBATCH --job-name=attune-worker
{{- if gt .Count 1}}
#SBATCH --array=0-{{.Last}}
{{- end}}
{{- with .Partition}}
#SBATCH --partition={{.}}
{{- end}}
#SBATCH --nodes=1
#SBATCH --ntasks=1
#SBATCH --cpus-per-task={{.CPUs}}
#SBATCH --mem={{.Memory}}G
#SBATCH --gres=gpu:{{with .GPU}}{{.}}:{{end}}1
#SBATCH --exclusive=user
#SBATCH --time={{.Slurm .Time}}
#SBATCH --signal=B:INT@60
#SBATCH --open-mode=append

set -eu
export ATTUNE_FLEET_CREDS={{.CredsPath "${SLURM_ARRAY_TASK_ID:-0}"}}

# At the time limit attune gets the signal itself, and gives its job back to the fleet.
exec {{shell .Program}} worker --device cuda:0 --idle {{.Idle}}{{with .Class}} --class {{.}}{{end}}
