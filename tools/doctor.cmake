# rocelink doctor; it looks at devices through devices_collect.c.
if(TARGET librocelink)
  target_sources(rocelink PRIVATE doctor.c doctor_local.c doctor_path.c doctor_port.c doctor_probe.c
    doctor_serve.c)
endif()
