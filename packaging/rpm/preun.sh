# $1 = 0: removed; at an upgrade the lock must not be touched.
if [ "$1" -eq 0 ]; then
    if [ -d /run/systemd/system ] && [ "$(systemctl is-system-running || :)" != stopping ]; then
        state=$(busctl --timeout=5 get-property io.vmdrain.Agent1 /io/vmdrain/Agent1 io.vmdrain.Agent1 State 2>/dev/null) || state=
        going=$(busctl --timeout=5 get-property org.freedesktop.login1 /org/freedesktop/login1 org.freedesktop.login1.Manager \
            PreparingForShutdown 2>/dev/null) || going=
        case "$going $state" in
        *true*preparing* | *true*evacuating* | *true*falling_back* | *true*confirming*)
            echo "vmdrain-agent: a shutdown is waiting for VMs to leave this host, and without the agent it would go on at once:" >&2
            echo "vmdrain-agent: not removed. To give the VMs up: systemctl stop vmdrain-agent" >&2
            exit 1
            ;;
        esac
        # Sees a running system and drains nothing.
        systemctl stop vmdrain-hold.service || :
        case "$state" in
        *preparing* | *evacuating* | *falling_back* | *holding* | *confirming*)
            echo "vmdrain-agent: a drain is running; it is called off" >&2
            timeout 60 vmdrain-agent cancel >&2 ||
                echo "vmdrain-agent: it could not be called off; the node may stay cordoned" >&2
            ;;
        *drained* | *deadline*)
            echo "vmdrain-agent: the node stays cordoned; 'kubectl uncordon' gives it back" >&2
            ;;
        esac
        # Empties the fd store: the lock is gone.
        systemctl stop vmdrain-agent.service || :
    fi
    systemctl --no-reload disable vmdrain-agent.service vmdrain-hold.service || :
fi
