# $1 = 0: removed. The state in /var/lib/vmdrain-agent stays, as RPM has no purge.
if [ "$1" -eq 0 ]; then
    rm -rf /run/vmdrain-agent
    journalctl --update-catalog || :
    if [ -d /run/systemd/system ]; then
        busctl --timeout=10 call org.freedesktop.DBus /org/freedesktop/DBus org.freedesktop.DBus ReloadConfig >/dev/null || :
        systemctl daemon-reload || :
        systemctl reset-failed vmdrain-agent.service vmdrain-hold.service 2>/dev/null || :
        # logind goes back to its own limit. Never a restart, see host-setup.
        if systemctl --quiet is-active systemd-logind.service; then
            if [ "$(systemctl show --property=CanReload --value systemd-logind.service)" = yes ]; then
                systemctl reload systemd-logind.service || :
            else
                systemctl kill --signal=HUP systemd-logind.service || :
            fi
        fi
    fi
fi
