# $1 = 0: removed. The state in /var/lib/vmdrain-agent stays, as RPM has no purge.
if [ "$1" -eq 0 ]; then
    rm -rf /run/vmdrain-agent
    # The archive names files only; their directories would stay behind.
    for directory in /usr/lib/vmdrain-agent /etc/vmdrain-agent /usr/share/licenses/vmdrain-agent \
        /usr/share/doc/vmdrain-agent/examples/own-user /usr/share/doc/vmdrain-agent/examples/maintenance \
        /usr/share/doc/vmdrain-agent/examples /usr/share/doc/vmdrain-agent \
        /usr/lib/systemd/system/cri-containerd-.scope.d /usr/lib/systemd/system/crio-.scope.d \
        /usr/lib/systemd/system/crio-conmon-.scope.d /usr/lib/systemd/system/docker-.scope.d; do
        rmdir $directory 2>/dev/null || :
    done
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
