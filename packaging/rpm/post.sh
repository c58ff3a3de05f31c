# $1 = 1: installed, 2: upgraded. The same order as in the Debian package.
/usr/lib/vmdrain-agent/host-setup
if [ "$1" -eq 1 ]; then
    systemctl --no-reload preset vmdrain-agent.service vmdrain-hold.service || :
fi
if [ -d /run/systemd/system ]; then
    systemctl daemon-reload || :
    for unit in vmdrain-agent.service vmdrain-hold.service; do
        systemctl --quiet is-enabled $unit || continue
        case $unit in
        # The lock stays in the fd store, a drain goes on where it was.
        vmdrain-agent.service) systemctl restart $unit || : ;;
        # Behind the kubelet; a running one is left alone, because its stop is the stop job.
        *) systemctl --no-block start $unit || : ;;
        esac
    done
fi
