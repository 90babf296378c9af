echo hello from $(uname -r); nvme version; cat /proc/uptime; time fio --version; cat /proc/uptime; cat /sys/class/virtio-ports/*/name; ls /dev/vport*; ip a; cat /proc/uptime; lsmod
