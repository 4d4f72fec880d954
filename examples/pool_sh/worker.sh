#!/bin/sh
# A worker of a Treadle pool in plain POSIX shell: one line in, one line out (docs/protocol.md).
# It reads what it needs with sed. A worker that meets texts with quotes in them needs a language that reads JSON.

field() { printf '%s\n' "$line" | sed -n "s/.*\"$1\":\"\{0,1\}\([^\",}]*\).*/\1/p"; }

while IFS= read -r line; do
  case $(field type) in
    hello) echo '{"type":"ready","protocol":1}' ;;
    run)
      id=$(field id) word=$(field word) times=$(field times)
      echo "repeating it $times times" >&2 # whatever is written to stderr is in the job's log
      if [ "$word" = stop ]; then
        echo "{\"type\":\"outcome\",\"id\":\"$id\",\"status\":\"fail\",\"error\":\"$word is not to be repeated\"}"
        continue
      fi
      text= n=0
      while [ "$n" -lt "$times" ]; do
        n=$((n + 1)) text="$text$word "
        echo "{\"type\":\"progress\",\"id\":\"$id\",\"done\":$n,\"total\":$times}"
      done
      echo "{\"type\":\"outcome\",\"id\":\"$id\",\"status\":\"succeeded\",\"result\":\"$text\"}"
      ;;
  esac
done
