#!/usr/bin/env bash
# Builds the application with Maven, and an archive of the classes that it loads: `build.sh PREFIX/bin/NAME` writes that
# program, which takes options of Java, and PREFIX/share/NAME.
set -euo pipefail
sources=$(cd "$(dirname "$0")" && pwd)
program=$1 share=$(dirname "$1")/../share/$(basename "$1")
java=$(readlink -f "$(command -v java)")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp -r "$sources/pom.xml" "$sources/src" "$work"
mvn --batch-mode --quiet --file "$work/pom.xml" -DskipTests package
rm -rf "$share"
mkdir -p "$share" "$(dirname "$program")"
share=$(cd "$share" && pwd)
"$java" -Djarmode=tools -jar "$work/target/events.jar" extract --destination "$share" > /dev/null
# The application ends when it could serve, and asks no database.
"$java" -XX:ArchiveClassesAtExit="$share/classes.jsa" -Xshare:auto -Xlog:cds=off -Xlog:cds+dynamic=off \
    -Dspring.context.exit=onRefresh -Dspring.sql.init.mode=never \
    -Dspring.datasource.url=jdbc:postgresql:none -jar "$share/events.jar" > "$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }
# A new Java is another stack.
ln -s "$(dirname "$java")/../lib/server/libjvm.so" "$share"
cat > "$program.part" <<EOF
#!/bin/sh
exec $java -XX:SharedArchiveFile=$share/classes.jsa "\$@" -jar $share/events.jar
EOF
chmod 755 "$program.part"
mv "$program.part" "$program"
