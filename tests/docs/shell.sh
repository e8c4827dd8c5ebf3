# SPDX-License-Identifier: Apache-2.0
# Usage: bash shell.sh COMMANDS [any-status]. Runs a file of commands as written in a document, each
# of which must succeed. Variables that they set are available to the next file. `any-status` lets
# curl get answers such as 429, for callers that compare what it prints.
#
# From the environment: STATE is a folder for what is kept between calls, REPOSITORY the sources,
# HTTP_LISTEN and ADMIN_LISTEN the addresses that replace the program's own defaults, REDIS_PORT the
# port of the default redis-server, COMPILER the C++ compiler.
set -euo pipefail
unset MAKEFLAGS MFLAGS MAKELEVEL  # Those of a `make test` are for itself.

curl() {
  local arguments=(--silent --show-error --noproxy '*' --max-time 60)
  # The servers for the hosts in examples are here.
  arguments+=(--connect-to sluice.example::127.0.0.1:)
  # An error status fails the documented command, unless the status is what is shown.
  if [ "$any_status" != any-status ] && [[ " $* " != *" -w "* ]]; then
    arguments+=(--fail-with-body)
  fi
  command curl "${arguments[@]}" "$@"
}

# The one that has Debian's packages.
python3() {
  /usr/bin/python3 "$@"
}

# The one that built the library.
c++() {
  command "$COMPILER" "$@"
}

redis-cli() {
  # As a person at a terminal sees it, but failing like a program.
  local arguments=(--no-raw -e)
  [[ " $* " == *" -p "* || " $* " == *" -u "* ]] || arguments+=(-p "$REDIS_PORT")
  command redis-cli "${arguments[@]}" "$@"
}

# Whether redis-server starts with a redis.conf.
check_redis_conf() {
  local socket=$PWD/check.sock pid
  redis-server "$1" --port 0 --unixsocket "$socket" --dir "$PWD" >"$STATE/redis.out" 2>&1 &
  pid=$!
  until command redis-cli -s "$socket" shutdown nosave >/dev/null 2>&1; do
    kill -0 "$pid" 2>/dev/null || break
    sleep 0.02
  done
  wait "$pid" || { cat "$STATE/redis.out" >&2; return 1; }
}

# Whether targets exist; running them is tested elsewhere. `make run` starts the service.
make() {
  command make --no-print-directory --dry-run --directory "$REPOSITORY" "$@" >/dev/null
  local argument
  for argument in "$@"; do
    case $argument in
      run) background 2 tools/run build/release/sluice ;;
      SCENARIO=*) "$REPOSITORY/tests/chaos/run" --list | grep -w -- "${argument#*=}" >/dev/null ;;
    esac
  done
}

sluice() {
  if [ "${1-}" != serve ]; then
    SLUICE_SERVER=${SLUICE_SERVER-http://$HTTP_LISTEN} command sluice "$@"
    return
  fi
  shift
  # The defaults are the only addresses that are not in the document.
  local settings doors variables
  settings=$(command sluice config "$@" | grep '^  listen: ".*[0-9]"$')
  doors=$(wc -l <<<"$settings")
  # A busy machine must not trigger the policy for outages.
  variables=(SLUICE_DEADLINE=60s SLUICE_BREAKER_SLOW_AFTER=60s SLUICE_BREAKER_SLOW_PERCENT=100)
  if [[ $settings == *'"127.0.0.1:8080"'* ]]; then variables+=("SLUICE_HTTP=$HTTP_LISTEN"); fi
  if [[ $settings == *'"127.0.0.1:8090"'* ]]; then variables+=("SLUICE_ADMIN=$ADMIN_LISTEN"); fi
  background "$doors" env "${variables[@]}" sluice serve "$@"
}

# Usage: background DOORS COMMAND... Starts what would block the terminal, replacing what an earlier
# block started, and returns when that many doors are open.
background() {
  local doors=$1 pid
  shift
  stop_service
  : >"$STATE/service.out"  # Before it is read below: the child may start slowly.
  "$@" >"$STATE/service.out" 2>"$STATE/service.log" </dev/null &
  pid=$!
  echo "$pid" >"$STATE/service.pid"
  until [ "$(grep -c ' listening on ' "$STATE/service.out")" -ge "$doors" ]; do
    if ! kill -0 "$pid" 2>/dev/null; then
      echo "the service ended:" >&2
      cat "$STATE/service.log" >&2
      return 1
    fi
    sleep 0.02
  done
}

stop_service() {
  [ -e "$STATE/service.pid" ] || return 0
  local pid
  pid=$(cat "$STATE/service.pid")
  rm "$STATE/service.pid"
  kill -KILL "$pid" 2>/dev/null || return 0
  # Its parent does not wait for it.
  while grep -Eqs '^State:[[:space:]]+[^XZ[:space:]]' "/proc/$pid/status"; do sleep 0.02; done
}

if [ -e "$STATE/variables" ]; then source "$STATE/variables"; fi
any_status=${2-}
set -a
trap 'export -p >"$STATE/variables"' EXIT
source "$1"
