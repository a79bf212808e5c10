//===- Launch.cpp - start scripts of a plan ------------------------------===//
#include "compiler/driver/Launch.h"

#include "support/OutputFile.h"
#include "support/ShellWord.h"

#include <algorithm>
#include <filesystem>

namespace fs = std::filesystem;

namespace pipec {
namespace {

/// Replaces every @NAME@.
std::string
fill(std::string text,
     const std::vector<std::pair<std::string, std::string>> &values) {
  for (const auto &[name, value] : values) {
    const std::string mark = "@" + name + "@";
    for (size_t at = text.find(mark); at != std::string::npos;
         at = text.find(mark, at + value.size()))
      text.replace(at, mark.size(), value);
  }
  return text;
}

int servers(const plan::Plan &plan) {
  int last = 0;
  for (const plan::Rank &rank : plan.ranks)
    last = std::max(last, rank.host);
  return last + 1;
}

int ranksOfFullestServer(const plan::Plan &plan) {
  std::vector<int> count(servers(plan), 0);
  for (const plan::Rank &rank : plan.ranks)
    ++count[rank.host];
  return *std::max_element(count.begin(), count.end());
}

/// The server of every rank, in order: "0 0 1 1".
std::string serverOfRanks(const plan::Plan &plan) {
  std::string text;
  for (const plan::Rank &rank : plan.ranks)
    text += (text.empty() ? "" : " ") + std::to_string(rank.host);
  return text;
}

/// Names come from the model: each is a word of the shell that reads it, and
/// ends no line.
std::string dataFlags(const plan::Plan &plan, const std::string &separator,
                      const std::string &folder) {
  std::string text;
  for (size_t i = 0; i < plan.inputs.size(); ++i)
    if (const plan::Input &input = plan.inputs[i];
        plan.reads(static_cast<int>(i)))
      text += (text.empty() ? "" : separator) + "--data " +
              shellWord(input.name + "=" + folder + input.name + ".npy");
  return text;
}

void write(const fs::path &path, const std::string &text, bool executable) {
  writeFile(path.string(), text);
  std::error_code error;
  if (executable)
    fs::permissions(path,
                    fs::perms::owner_exec | fs::perms::group_exec |
                        fs::perms::others_exec,
                    fs::perm_options::add, error);
  if (error)
    cannotWrite(path.string(), error.value());
}

constexpr const char *kMpirun = R"sh(#!/bin/bash
# Starts the @RANKS@ ranks of this plan with Open MPI. Arguments go to pipec-run:
#
#   launch/mpirun.sh @DATA@ --steps 100
#
# HOSTS="alpha beta" names the @SERVERS@ the plan is for, in its order
# (default: this machine). PIPEC_RUN names the program where it is not on PATH,
# MPIRUN_FLAGS is handed to mpirun.
set -euo pipefail
plan=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

# The server of every rank.
server_of_rank=(@SERVER_OF_RANK@)
read -r -a hosts <<<"${HOSTS:-}"
while [[ -z ${HOSTS:-} ]] && ((${#hosts[@]} < @SERVER_COUNT@)); do
  hosts+=("$(hostname)")
done
if ((${#hosts[@]} != @SERVER_COUNT@)); then
  echo "mpirun.sh: HOSTS must name @SERVERS@, it names ${#hosts[@]}" >&2
  exit 64
fi

# One line a rank, which the sequential mapper takes in order.
hostfile=$(mktemp)
trap 'rm -f "$hostfile"' EXIT
for server in "${server_of_rank[@]}"; do
  echo "${hosts[$server]}"
done >"$hostfile"

flags=(--mca rmaps seq --hostfile "$hostfile" --oversubscribe --bind-to none)
if [[ $(id -u) == 0 ]]; then
  flags+=(--allow-run-as-root)
fi
# Other servers get these as well, where they are set.
for name in LD_LIBRARY_PATH OMP_NUM_THREADS; do
  if [[ ${!name:-} ]]; then
    flags+=(-x "$name")
  fi
done
# A group of its own: what a terminal sends goes through the traps below.
set -m
# shellcheck disable=SC2086
mpirun -np @RANKS@ "${flags[@]}" ${MPIRUN_FLAGS:-} \
  "${PIPEC_RUN:-pipec-run}" "$plan" "$@" </dev/null &
child=$!
set +m

# mpirun kills the ranks on TERM and INT, but passes USR1 on, which asks them to
# write a checkpoint and stop. Who asks twice does not want to wait: the code is
# then that of a program that dies of the signal, unless all was done by then.
asked= killed=
stop() {
  kill "$([[ $asked ]] && echo -TERM || echo -USR1)" "$child" || true
  [[ $asked ]] && killed=$1
  asked=yes again=yes
}
for signal in TERM INT HUP USR1; do
  # shellcheck disable=SC2064
  trap "stop $signal" $signal
done
again=yes
while [[ $again ]]; do # a signal ends the wait
  again= code=0
  wait "$child" || code=$?
done
# Where a rank dies of a signal mpirun ends with 128 and its number.
if [[ $killed && $code != 75 && $code != 0 ]]; then
  code=$((128 + $(kill -l "$killed")))
elif [[ $asked && $code == 138 ]]; then # USR1: it had not begun
  code=75
elif ((code > 128)); then # to the others it is a peer lost
  echo "mpirun.sh: a rank was killed ($code by mpirun's count)" >&2
  code=76
fi
exit "$code"
)sh";

constexpr const char *kSlurm = R"sh(#!/bin/bash
# Runs this plan under Slurm. Arguments go to pipec-run:
#
#   sbatch launch/slurm.sbatch @DATA@ --steps 100 \
#     --checkpoint ck --checkpoint-every 100
#
# Five minutes before its time is over the job is told to stop: it writes a
# checkpoint, ends with 75, and --resume ck goes on from there.
#SBATCH --job-name=pipec
#SBATCH --nodes=@SERVER_COUNT@
#SBATCH --ntasks=@RANKS@
#SBATCH --ntasks-per-node=@PER_SERVER@@GPUS@
#SBATCH --signal=B:USR1@300
set -euo pipefail

# sbatch copies this file away; PLAN says where the plan is.
plan=${PLAN:-@PLAN_HINT@}
export HOSTS
HOSTS=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | tr '\n' ' ')
"$plan/launch/mpirun.sh" "$@" &
child=$!
trap 'kill -USR1 "$child"; again=yes' USR1 TERM INT
again=yes
while [[ $again ]]; do
  again= code=0
  wait "$child" || code=$?
done
exit "$code"
)sh";

constexpr const char *kKubernetes =
    R"yaml(# Runs this plan as a job of the MPI operator (kubeflow.org, v2beta1).
# To be adapted: the image (pipec-run, Open MPI and sshd in it), the volume that
# holds the plan at /plan and the data at /data, and the steps.
apiVersion: kubeflow.org/v2beta1
kind: MPIJob
metadata:
  name: pipec
spec:
  slotsPerWorker: @PER_SERVER@
  runPolicy:
    cleanPodPolicy: Running
    backoffLimit: 0
  mpiReplicaSpecs:
    Launcher:
      replicas: 1
      template:
        spec:
          restartPolicy: Never
          containers:
            - name: launcher
              image: pipec-run:@VERSION@
              command: ["/bin/bash", "-c"]
              args:
                - >-
                  HOSTS="$(cut -d' ' -f1 /etc/mpi/hostfile | tr '\n' ' ')"
                  exec /plan/launch/mpirun.sh
                  @DATA_LINES@
                  --steps 100
                  --export /data/trained.onnx
              volumeMounts: &mounts
                - {name: plan, mountPath: /plan}
                - {name: data, mountPath: /data}
          volumes: &volumes
            - name: plan
              persistentVolumeClaim: {claimName: pipec-plan}
            - name: data
              persistentVolumeClaim: {claimName: pipec-data}
    Worker:
      replicas: @SERVER_COUNT@
      template:
        spec:
          containers:
            - name: worker
              image: pipec-run:@VERSION@
              volumeMounts: *mounts
              resources:
                limits: {memory: "@MEMORY@"@GPU_LIMIT@}
          volumes: *volumes
)yaml";

std::string serversText(const plan::Plan &plan) {
  int n = servers(plan);
  return n == 1 ? "one server" : std::to_string(n) + " servers";
}

/// What a server's ranks need, with a quarter and 512 MiB a rank for
/// everything that is not the plan's.
std::string memoryOfServer(const plan::Plan &plan) {
  std::vector<int64_t> bytes(servers(plan), 0);
  for (const plan::Rank &rank : plan.ranks)
    bytes[rank.host] +=
        plan.cluster.kind == "cpu"
            ? rank.peak_bytes + rank.peak_bytes / 4 + (int64_t(512) << 20)
            : int64_t(4) << 30;
  int64_t most = *std::max_element(bytes.begin(), bytes.end());
  return std::to_string((most + (1 << 20) - 1) >> 20) + "Mi";
}

} // namespace

std::string mpirunScript(const plan::Plan &plan) {
  return fill(kMpirun, {{"RANKS", std::to_string(plan.ranks.size())},
                        {"DATA", dataFlags(plan, " ", "")},
                        {"SERVERS", serversText(plan)},
                        {"SERVER_COUNT", std::to_string(servers(plan))},
                        {"SERVER_OF_RANK", serverOfRanks(plan)}});
}

std::string slurmScript(const plan::Plan &plan) {
  const std::string perServer = std::to_string(ranksOfFullestServer(plan));
  const bool gpus = plan.cluster.kind == "cuda";
  return fill(kSlurm,
              {{"RANKS", std::to_string(plan.ranks.size())},
               {"DATA", dataFlags(plan, " ", "")},
               {"SERVER_COUNT", std::to_string(servers(plan))},
               {"PER_SERVER", perServer},
               {"GPUS", gpus ? "\n#SBATCH --gpus-per-node=" + perServer : ""},
               {"PLAN_HINT", "$SLURM_SUBMIT_DIR"}});
}

std::string kubernetesManifest(const plan::Plan &plan) {
  const std::string perServer = std::to_string(ranksOfFullestServer(plan));
  const bool gpus = plan.cluster.kind == "cuda";
  return fill(
      kKubernetes,
      {{"SERVER_COUNT", std::to_string(servers(plan))},
       {"PER_SERVER", perServer},
       {"VERSION", plan.pipec_version},
       {"DATA_LINES", dataFlags(plan, "\n" + std::string(18, ' '), "/data/")},
       {"MEMORY", memoryOfServer(plan)},
       {"GPU_LIMIT", gpus ? ", nvidia.com/gpu: " + perServer : ""}});
}

void writeLaunchFiles(const plan::Plan &plan, const std::string &folder) {
  const fs::path launch = fs::path(folder) / "launch";
  write(launch / "mpirun.sh", mpirunScript(plan), true);
  write(launch / "slurm.sbatch", slurmScript(plan), true);
  write(launch / "kubernetes.yaml", kubernetesManifest(plan), false);
}

} // namespace pipec
